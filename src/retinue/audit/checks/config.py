"""The configuration: what could not be used, and what is set without effect."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import Facts
from retinue.audit.finding import Finding, Severity

AREA = "config"


def check_config(facts: Facts) -> Iterator[Finding]:
    """Errors, warnings, and keys that change nothing yet."""
    loaded = facts.loaded
    instead = {
        "file": "The file is in effect nevertheless.",
        "last-good": "The last valid configuration is used instead.",
        "defaults": "The defaults are used instead.",
    }
    for problem in loaded.errors:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            str(problem),
            instead[loaded.source],
            "Correct it; `retinue config validate` shows whether all is well.",
        )
    for problem in loaded.warnings:
        yield Finding(
            AREA,
            Severity.WARNING,
            str(problem),
            "What you meant is not what happens.",
            "Correct or remove it; `retinue config explain KEY` tells what a key takes.",
        )
    if loaded.pending:
        yield Finding(
            AREA,
            Severity.NOTE,
            f"These keys are set and change nothing yet: {', '.join(loaded.pending)}.",
            "They are accepted so that an existing configuration stays valid.",
            "Do not rely on them.",
        )
    if facts.tracing_missing:
        yield Finding(
            AREA,
            Severity.WARNING,
            "diagnostics.otel.enabled is set, and the packages that send traces are not installed.",
            "No traces are sent.",
            "Run `pip install 'retinue[otel]'`.",
        )
