"""Skills: which are off and why, which could not be read, which are hidden by others."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import Facts, SkillFacts
from retinue.audit.finding import Finding, Severity

AREA = "skills"


def check_skills(facts: Facts) -> Iterator[Finding]:
    """Every skill once, though several agents find it."""
    told: set[str] = set()
    for agent in facts.agents:
        if agent.skills is None:
            continue
        for finding in _check(agent.id, agent.skills):
            if finding.what not in told:
                told.add(finding.what)
                yield finding


def _check(agent: str, skills: SkillFacts) -> Iterator[Finding]:
    for problem in (*skills.found.problems, *skills.found.limits):
        yield Finding(
            AREA,
            Severity.WARNING,
            f"{problem.path}: {problem.message}",
            "No agent can use this skill.",
            "Correct the file; `retinue skills check` looks again.",
        )
    off = [item for item in skills.judged if not item.gate.eligible]
    if off:
        named = "; ".join(f"{item.skill.name} ({', '.join(item.gate.reasons)})" for item in off)
        yield Finding(
            AREA,
            Severity.NOTE,
            f"Off: {named}.",
            "The agents are not told of these skills.",
            "Provide what a skill asks for where you want it; `retinue skills info NAME` tells everything about one.",
        )
    for item in skills.found.shadowed:
        yield Finding(
            AREA,
            Severity.NOTE,
            f"{item.skill.location} is hidden by {item.by.location}, which has the same name.",
            "Only the first of two skills with one name is used.",
            "Rename or remove one of them if that is not what you want.",
        )
    if skills.omitted:
        yield Finding(
            AREA,
            Severity.WARNING,
            f"{len(skills.omitted)} skills do not fit into the prompt of agent '{agent}': {', '.join(skills.omitted)}.",
            "The agent does not know of them.",
            "Switch off skills that you do not need, or raise skills.limits.maxSkillsPromptChars.",
        )
