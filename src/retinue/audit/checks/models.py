"""Models: whether each agent has one, and whether its credentials can be used."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import AgentFacts, Facts
from retinue.audit.finding import Finding, Severity

AREA = "models"
AUTH = "`retinue models auth list` shows the credentials, `retinue models auth add` stores another."


def check_models(facts: Facts) -> Iterator[Finding]:
    """Every agent's model."""
    told: set[str] = set()
    for agent in facts.agents:
        for finding in _check(agent):
            if finding.what not in told:
                told.add(finding.what)
                yield finding


def _check(agent: AgentFacts) -> Iterator[Finding]:
    seen = agent.model
    silent = f"Agent '{agent.id}' cannot answer."
    for note in seen.notes:
        yield Finding(AREA, Severity.PROBLEM, note, "The credentials in it are not used.", AUTH)
    if seen.problem is not None:
        yield Finding(AREA, Severity.PROBLEM, seen.problem, silent, "`retinue models list` shows what can be chosen.")
        return
    if seen.chosen is None:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            f"There is no model for agent '{agent.id}'.",
            silent,
            "Set a key such as ANTHROPIC_API_KEY, start Ollama, or run `retinue models pull`.",
        )
        return
    if not seen.ready:
        yield Finding(AREA, Severity.PROBLEM, f"There is no credential for {seen.chosen}.", silent, AUTH)
    for text in seen.unreadable:
        yield Finding(AREA, Severity.PROBLEM, text, "The model is asked without it, or not at all.", AUTH)
    for profile in seen.profiles:
        for rest in profile.resting:
            yield Finding(
                AREA,
                Severity.WARNING,
                f"{profile.id} rests for {rest.model} until {rest.until:%Y-%m-%d %H:%M} UTC ({rest.reason}).",
                "Another credential or model answers meanwhile, if there is one.",
                "Wait, or see to the reason; `retinue models test` asks the model now.",
            )
    for text in seen.failures:
        yield Finding(AREA, Severity.PROBLEM, text, silent, "`retinue models test` tells more.")
