"""Plugins: those that should be used and are not."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import Facts
from retinue.audit.finding import Finding, Severity

AREA = "plugins"


def check_plugins(facts: Facts) -> Iterator[Finding]:
    """Every plugin that failed; the others work all the same."""
    for problem in facts.plugin_problems:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            problem,
            "What it would bring is missing.",
            "Correct it, or switch it off: `retinue plugins disable NAME`. `retinue logs` has the details.",
        )
