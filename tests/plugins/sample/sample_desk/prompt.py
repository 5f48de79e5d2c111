"""Prompt text for every model."""

from __future__ import annotations

from retinue.context.prompt.inputs import Contribution
from retinue.core.model import ModelInfo


def contribute(model: ModelInfo) -> Contribution:
    return Contribution("sample", stable_prefix="## Desk\nRing the bell.")
