"""The machine: room on the disk, and what time it is."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import Facts
from retinue.audit.finding import Finding, Severity

AREA = "machine"
SCARCE = 1_000_000_000
TOO_LITTLE = 100_000_000


def check_machine(facts: Facts) -> Iterator[Finding]:
    """Disk space and time zone."""
    if facts.free_bytes < SCARCE:
        yield Finding(
            AREA,
            Severity.PROBLEM if facts.free_bytes < TOO_LITTLE else Severity.WARNING,
            f"Only {facts.free_bytes / 1_000_000:,.0f} MB are free where {facts.home.path} is.",
            "Without room a message cannot be accepted, and an answer cannot be kept.",
            "Make room; `retinue sessions prune --dry-run` shows which archives could go.",
        )
    if not facts.zone_known:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            f"There is no time zone '{facts.zone}'.",
            "Jobs and the agent's clock fall back to another one.",
            "Set agents.defaults.userTimezone to a name such as Europe/Vienna.",
        )
    elif not facts.zone:
        yield Finding(
            AREA,
            Severity.NOTE,
            "Neither the configuration nor the machine names a time zone, so UTC is used.",
            "Jobs run, and the agent tells the time, by UTC.",
            "Set agents.defaults.userTimezone.",
        )
