"""A context engine that adds a word to nothing: it sends the whole history."""

from __future__ import annotations

from retinue.context.engine import DefaultEngine

MADE: list[DefaultEngine] = []


def make_engine() -> DefaultEngine:
    from retinue.context.settings import CompactionSettings, ContextPruningSettings

    MADE.append(DefaultEngine(CompactionSettings(), ContextPruningSettings()))
    return MADE[-1]
