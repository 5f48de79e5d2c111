"""Sessions: whether transcripts can be read and the index agrees with them."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import Facts
from retinue.audit.finding import Finding, MendSessions, Severity
from retinue.sessions.upkeep.check import TranscriptFault

AREA = "sessions"


def check_sessions(facts: Facts) -> Iterator[Finding]:
    """What `retinue sessions check` finds, without what is only kept from earlier."""
    for agent in facts.agents:
        for found in agent.sessions.findings:
            if found.fault is TranscriptFault.LEFTOVER:
                continue
            yield Finding(
                AREA,
                Severity.PROBLEM if found.fault.is_problem else Severity.NOTE,
                f"{found.path.name} of agent '{agent.id}': {found.text}",
                "A conversation, or a part of it, may be missing from lists and from what the model reads.",
                f"It {found.remedy.value}." if found.remedy else "`retinue sessions check` shows the whole file.",
                (MendSessions(agent.id),) if found.remedy else (),
            )
