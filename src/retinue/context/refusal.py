"""What asking for a summary takes, and how it is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

from msgspec import Struct

Summarise = Callable[[str, str], Awaitable[str]]
"""Asks a model: the system prompt and the user's message in, its words out. Raises `ModelError` where none answers."""


class Refusal(StrEnum):
    """Why there is no summary."""

    NOTHING = "nothing"
    MODEL = "model"
    TIMEOUT = "timeout"
    AUDIT = "audit"


class Refused(Struct, frozen=True):
    """The history stays as it is. `reason` is a sentence for the user; `problems` are what the check found."""

    reason: str
    because: Refusal
    problems: tuple[str, ...] = ()
