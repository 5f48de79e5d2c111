"""Permissions: nobody but the owner may read Retinue's own state."""

from __future__ import annotations

import stat
from collections.abc import Iterator

from retinue.audit.facts import Entry, Facts
from retinue.audit.finding import Finding, Restrict, Severity
from retinue.storage.files.descriptors import PRIVATE_DIR, PRIVATE_FILE

AREA = "permissions"
MOST_NAMED = 5
OTHERS = 0o077


def check_permissions(facts: Facts) -> Iterator[Finding]:
    """Files that others may read, that their owner may not use, and that belong to somebody else.

    What lies in a folder of sessions is judged with the sessions.
    """
    foreign = [entry for entry in facts.entries if not entry.mine]
    shared = [entry for entry in facts.entries if entry.mine and entry.mode & OTHERS and not _is_session(entry, facts)]
    if shared:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            f"Others may read {_name(shared, facts)}.",
            "Conversations and credentials are in there.",
            "Take their permissions away: folders 0700, files 0600.",
            tuple(Restrict(entry.path, PRIVATE_DIR if entry.is_dir else PRIVATE_FILE) for entry in shared),
        )
    closed = [entry for entry in facts.entries if entry.mine and not _is_open(entry)]
    if closed:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            f"You may not use {_name(closed, facts)} yourself.",
            "Retinue cannot keep what happens there, or does not see what is.",
            f"Give yourself the permission: `chmod -R u+rwX {facts.home.path}`.",
        )
    if foreign:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            f"{_name(foreign, facts)} belong to another user.",
            "Retinue may fail to read or to change them, and their owner can.",
            f"Give them back to yourself: `sudo chown -R $(id -un) {facts.home.path}`.",
        )


def _is_open(entry: Entry) -> bool:
    """Whether the owner may read a file, or do everything in a folder."""
    needed = PRIVATE_DIR if entry.is_dir else stat.S_IRUSR
    return entry.mode & needed == needed


def _is_session(entry: Entry, facts: Facts) -> bool:
    match entry.path.relative_to(facts.home.path).parts:
        case ("agents", _, "sessions", *_):
            return True
    return False


def _name(entries: list[Entry], facts: Facts) -> str:
    home = facts.home.path
    names = [str(entry.path.relative_to(home)) if entry.path != home else str(home) for entry in entries]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
