"""The sandbox: whether commands that must be confined can be."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import Facts
from retinue.audit.finding import Finding, Severity
from retinue.sandbox.sandboxes import INSTALL

AREA = "sandbox"


def check_sandboxes(facts: Facts) -> Iterator[Finding]:
    """Every agent whose configuration asks for a sandbox."""
    for agent in facts.agents:
        seen = agent.sandbox
        if not seen.works:
            tried = "; ".join(f"{candidate.name}: {candidate.problem}" for candidate in seen.candidates)
            yield Finding(
                AREA,
                Severity.PROBLEM,
                f"Sessions of agent '{agent.id}' must be confined ({seen.because}), and nothing here can: {tried}.",
                "Their commands are refused.",
                INSTALL,
            )
