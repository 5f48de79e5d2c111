"""A context engine that adds a word to nothing: it sends the whole history."""

from __future__ import annotations

from retinue.context.engine import DefaultEngine, EngineParts

MADE: list[DefaultEngine] = []


def make_engine(parts: EngineParts) -> DefaultEngine:
    MADE.append(DefaultEngine(parts.compaction, parts.pruning, redact=parts.redact))
    return MADE[-1]
