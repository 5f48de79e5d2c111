"""Leftovers: what dead processes and damaged files left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from retinue.audit.facts import Facts
from retinue.audit.finding import Discard, Finding, Severity, SweepPresence

AREA = "leftovers"
STALE = timedelta(hours=1)
"""A file that is still being written is younger than this."""

_TEMPORARY = re.compile(r"\.(retinue|import)-.+\.tmp")
_KEPT = re.compile(r".+\.(torn|corrupt)([.-].+)?")


def check_leftovers(facts: Facts) -> Iterator[Finding]:
    """What can go, and what somebody should look at first."""
    files = [entry for entry in facts.entries if not entry.is_dir]
    stale = [entry for entry in files if _TEMPORARY.fullmatch(entry.path.name) and facts.now - entry.changed_at > STALE]
    if stale:
        yield Finding(
            AREA,
            Severity.WARNING,
            f"{len(stale)} files were being written by processes that died ({sum(e.size for e in stale):,} bytes).",
            "They only take up room.",
            "Delete them.",
            tuple(Discard(entry.path) for entry in stale),
        )
    for entry in files:
        if _KEPT.fullmatch(entry.path.name):
            yield Finding(
                AREA,
                Severity.NOTE,
                f"{entry.path} was damaged and is kept ({entry.size:,} bytes).",
                "A new file took its place; what only the old one held is not used.",
                "Look whether you need anything of it, then delete it.",
            )
    if facts.dead_presences:
        yield Finding(
            AREA,
            Severity.NOTE,
            f"{len(facts.dead_presences)} processes were killed and left their mark in presence/.",
            "The marks mean nothing any more.",
            "The next start removes them.",
            (SweepPresence(facts.dead_presences[0].parent),),
        )
