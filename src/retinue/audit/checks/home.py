"""Checks of the home: configuration, database and audit log, permissions, leftover files, disk space and time zone."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from datetime import timedelta

from retinue.audit.facts import Discard, Facts, Finding, Restrict, Severity, StateFile, SweepPresence
from retinue.storage.files.descriptors import PRIVATE_DIR, PRIVATE_FILE


def check_config(facts: Facts) -> Iterator[Finding]:
    """Report errors, warnings, and keys that are not used yet."""
    loaded = facts.loaded
    instead = {
        "file": "The file is used nevertheless.",
        "last-good": "The last valid configuration is used instead.",
        "defaults": "The defaults are used instead.",
    }
    for problem in loaded.errors:
        yield Finding(
            "config",
            Severity.PROBLEM,
            str(problem),
            instead[loaded.source],
            "Correct it, then run `retinue config validate`.",
        )
    for problem in (*loaded.warnings, *facts.unknown_names):
        yield Finding(
            "config",
            Severity.WARNING,
            str(problem),
            "The setting does not have the intended effect.",
            "Correct or remove it; `retinue config explain KEY` describes a key.",
        )
    if loaded.pending:
        yield Finding(
            "config",
            Severity.NOTE,
            f"These keys are set but not used yet: {', '.join(loaded.pending)}.",
            "They are accepted so that an existing configuration stays valid.",
            "Do not rely on them.",
        )
    if facts.tracing_missing:
        yield Finding(
            "config",
            Severity.WARNING,
            "diagnostics.otel.enabled is set, but the OpenTelemetry packages are not installed.",
            "No traces are sent.",
            "Run `pip install 'retinue[otel]'`.",
        )


def check_state(facts: Facts) -> Iterator[Finding]:
    """Report a damaged database or audit log. The next start moves a damaged database aside and keeps it."""
    if facts.audit_damage:
        yield Finding(
            "state",
            Severity.PROBLEM,
            f"The audit log was modified: {'; '.join(facts.audit_damage[:3])}.",
            "The record of what agents did is no longer reliable.",
            "Run `retinue security log --verify`, and compare with a backup.",
        )
    if not facts.state_whole:
        yield Finding(
            "state",
            Severity.PROBLEM,
            f"{facts.home.path / 'state.sqlite'} is damaged or not a database.",
            "It holds queued messages, jobs, approvals and tokens. The next start keeps the rows that can be read.",
            "Restore the file from a backup before you start anything, or start the gateway and read its report.",
        )
    for report in facts.state_reports:
        yield Finding(
            "state",
            Severity.WARNING,
            report,
            "Rows that were lost are only in the file that was kept, if at all.",
            "Check your jobs, tokens and last messages, then delete the file that was kept; this removes the report.",
        )


MAX_NAMED = 5
OTHERS = 0o077


def check_permissions(facts: Facts) -> Iterator[Finding]:
    """Report files that other users can read, that their owner cannot use, or that belong to another user.

    Files in session folders are checked with the sessions.
    """
    foreign = [entry for entry in facts.entries if not entry.mine]
    shared = [entry for entry in facts.entries if entry.mine and entry.mode & OTHERS and not _is_session(entry, facts)]
    if shared:
        yield Finding(
            "permissions",
            Severity.PROBLEM,
            f"Other users can read {_name(shared, facts)}.",
            "They contain conversations and credentials.",
            "Restrict the permissions: folders 0700, files 0600.",
            tuple(Restrict(entry.path, PRIVATE_DIR if entry.is_dir else PRIVATE_FILE) for entry in shared),
        )
    closed = [entry for entry in facts.entries if entry.mine and not _is_open(entry)]
    if closed:
        yield Finding(
            "permissions",
            Severity.PROBLEM,
            f"You have no access to {_name(closed, facts)}.",
            "Retinue cannot read or write there.",
            f"Grant yourself access: `chmod -R u+rwX {facts.home.path}`.",
        )
    if foreign:
        yield Finding(
            "permissions",
            Severity.PROBLEM,
            f"{_name(foreign, facts)} belong to another user.",
            "Retinue may be unable to read or change them, while the other user can.",
            f"Take ownership: `sudo chown -R $(id -un) {facts.home.path}`.",
        )


def _is_open(entry: StateFile) -> bool:
    """Return whether the owner can read a file, or use a folder fully."""
    needed = PRIVATE_DIR if entry.is_dir else stat.S_IRUSR
    return entry.mode & needed == needed


def _is_session(entry: StateFile, facts: Facts) -> bool:
    match entry.path.relative_to(facts.home.path).parts:
        case ("agents", _, "sessions", *_):
            return True
    return False


def _name(entries: list[StateFile], facts: Facts) -> str:
    home = facts.home.path
    names = [str(entry.path.relative_to(home)) if entry.path != home else str(home) for entry in entries]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


STALE = timedelta(hours=1)
"""Temporary files younger than this may still be in use."""

_TEMPORARY = re.compile(r"\.(retinue|import)-.+\.tmp")
_KEPT = re.compile(r".+\.(torn|corrupt)([.-].+)?")


_UNFINISHED_IMPORT = "unfinished.json"


def check_leftovers(facts: Facts) -> Iterator[Finding]:
    """Report temporary files that can be deleted, and damaged files that were set aside."""
    files = [entry for entry in facts.entries if not entry.is_dir]
    stale = [entry for entry in files if _TEMPORARY.fullmatch(entry.path.name) and facts.now - entry.changed_at > STALE]
    if stale:
        yield Finding(
            "leftovers",
            Severity.WARNING,
            f"{len(stale)} temporary files were left by processes that ended ({sum(e.size for e in stale):,} bytes).",
            "They only use disk space.",
            "Delete them.",
            tuple(Discard(entry.path) for entry in stale),
        )
    for entry in files:
        if _KEPT.fullmatch(entry.path.name) and entry.path.suffix != ".txt":
            yield Finding(
                "leftovers",
                Severity.NOTE,
                f"{entry.path} is a damaged file that was set aside ({entry.size:,} bytes).",
                "A new file replaced it; content that only the old one holds is not used.",
                "Check whether you need its content, then delete it.",
            )
    for entry in files:
        if entry.path.name == _UNFINISHED_IMPORT and entry.path.parent.parent.name == "imports":
            yield Finding(
                "leftovers",
                Severity.WARNING,
                f"An import from {entry.path.parent.name} was interrupted.",
                "What it imported is complete, but the rest is missing.",
                f"Repeat `retinue import {entry.path.parent.name}`; nothing is imported twice.",
            )
    if facts.dead_presences:
        yield Finding(
            "leftovers",
            Severity.NOTE,
            f"{len(facts.dead_presences)} killed processes left files in presence/.",
            "The files have no effect.",
            "The next start removes them.",
            (SweepPresence(facts.dead_presences[0].parent),),
        )


SCARCE = 1_000_000_000
TOO_LITTLE = 100_000_000


def check_machine(facts: Facts) -> Iterator[Finding]:
    """Report low disk space, changes of the clock and time zone problems."""
    if facts.free_bytes < SCARCE:
        yield Finding(
            "machine",
            Severity.PROBLEM if facts.free_bytes < TOO_LITTLE else Severity.WARNING,
            f"Only {facts.free_bytes / 1_000_000:,.0f} MB are free on the disk of {facts.home.path}.",
            "Without disk space, messages and answers cannot be stored.",
            "Free disk space; `retinue sessions prune --dry-run` lists archives that could be removed.",
        )
    if facts.clock_jumps:
        yield Finding(
            "machine",
            Severity.WARNING,
            f"The clock was set {'; then '.join(map(str, facts.clock_jumps))}.",
            "Jobs and heartbeats run by this clock. Their next runs were corrected, and no slot that ran is repeated.",
            "Compare `date` with the real time, and turn on time synchronisation (`timedatectl set-ntp true`).",
        )
    if facts.jobs_ahead:
        yield Finding(
            "machine",
            Severity.WARNING,
            f"A clock that was ahead planned the next runs of these jobs: {', '.join(facts.jobs_ahead[:10])}.",
            "They would run too late or never.",
            "Start the gateway (`retinue gateway start`): it corrects them.",
        )
    if not facts.zone_known:
        yield Finding(
            "machine",
            Severity.PROBLEM,
            f"There is no time zone '{facts.zone}'.",
            "Jobs and the agent's clock fall back to another one.",
            "Set agents.defaults.userTimezone to a name such as Europe/Vienna.",
        )
    elif not facts.zone:
        yield Finding(
            "machine",
            Severity.NOTE,
            "Neither the configuration nor the system sets a time zone, so UTC is used.",
            "Jobs and the agent's clock use UTC.",
            "Set agents.defaults.userTimezone.",
        )
