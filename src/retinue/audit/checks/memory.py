"""Memory: whether the notes are indexed, and how they are searched."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import Facts
from retinue.audit.finding import Finding, Severity

AREA = "memory"


def check_memory(facts: Facts) -> Iterator[Finding]:
    """Every agent's index; an agent without memory search has none."""
    for agent in facts.agents:
        seen = agent.memory
        if seen is None:
            continue
        index = f"`retinue memory index --agent {agent.id}`"
        if seen.problem is not None:
            yield Finding(
                AREA, Severity.PROBLEM, seen.problem, f"Agent '{agent.id}' finds no notes.", f"{index} --force."
            )
        elif not seen.exists:
            yield Finding(
                AREA,
                Severity.NOTE,
                f"There is no index of the notes of agent '{agent.id}' yet.",
                "The first conversation that has notes to look in makes it.",
                f"{index} does it now.",
            )
        elif seen.dirty:
            yield Finding(
                AREA,
                Severity.NOTE,
                f"Notes of agent '{agent.id}' changed since they were indexed.",
                "The next search or conversation brings the index up to date.",
                f"{index} does it now.",
            )
        if seen.problem is None and seen.exists and seen.wants_vectors and (seen.reason or not seen.provider):
            yield Finding(
                AREA,
                Severity.WARNING,
                f"Notes of agent '{agent.id}' are found by their words alone"
                f"{f': {seen.reason}' if seen.reason else '.'}",
                "What is said in other words is not found.",
                "`retinue memory status` tells which embedder is used; see agents.defaults.memorySearch.",
            )
        for text in seen.unreadable:
            yield Finding(AREA, Severity.WARNING, text, "The note is not found by a search.", "Correct the file.")
