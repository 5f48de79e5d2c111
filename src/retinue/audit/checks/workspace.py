"""The agents' folders: what is missing, cut short or left over."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import AgentFacts, Facts
from retinue.audit.finding import Finding, MakeWorkspace, Severity

AREA = "workspace"


def check_workspaces(facts: Facts) -> Iterator[Finding]:
    """Every agent's folder."""
    for agent in facts.agents:
        yield from _check(agent)


def _check(agent: AgentFacts) -> Iterator[Finding]:
    seen = agent.workspace
    if seen.problem is not None:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            seen.problem,
            f"Agent '{agent.id}' cannot work without it.",
            "`retinue workspace list` shows where every agent's is.",
            (MakeWorkspace(agent.id),) if seen.absent else (),
        )
        return
    if not seen.trusted:
        yield Finding(
            AREA,
            Severity.WARNING,
            f"{seen.path} was not made by Retinue, and nobody vouched for it.",
            f"Agent '{agent.id}' reads its files as data, and uses none of its skills and hooks.",
            f"If you know what is in it: `retinue workspace trust --agent {agent.id}`.",
        )
    if seen.missing:
        yield Finding(
            AREA,
            Severity.WARNING,
            f"{', '.join(seen.missing)} missing in {seen.path}.",
            "The agent is told that the files are missing, and works without what they would say.",
            f"`retinue workspace seed --agent {agent.id}` makes them anew from the templates.",
        )
    for file in seen.truncated:
        yield Finding(
            AREA,
            Severity.WARNING,
            f"{file.name} of agent '{agent.id}' is shortened in the prompt from {file.raw} to {file.injected} "
            "characters.",
            "The agent does not see the part that was left out.",
            "Move details into memory notes or a skill, or raise agents.defaults.bootstrapMaxChars.",
        )
    for fault in seen.faults:
        yield Finding(AREA, Severity.PROBLEM, fault, "The agent does not read the file.", f"Correct it in {seen.path}.")
    if seen.leftover_ritual:
        yield Finding(
            AREA,
            Severity.NOTE,
            f"BOOTSTRAP.md is left over in {seen.path}.",
            "The first conversation is done, so it is not read any more.",
            "Delete it.",
        )
