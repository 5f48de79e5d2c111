"""Hook points for plugins: building a prompt, choosing a model, compacting a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retinue.core.keys import SessionKey
from retinue.hooks.bus import Given, Point, Query


@dataclass(frozen=True, slots=True)
class PromptDraft:
    """A prompt that is about to be sent, and the message it is for."""

    session: SessionKey
    system: str
    message: str


@dataclass(frozen=True, slots=True)
class PromptChange:
    """Changes of the prompt by a plugin; an empty text changes nothing.

    `system` replaces the stable block. The others add text before or after the session block or the message.
    """

    system: str = ""
    before_system: str = ""
    after_system: str = ""
    before_message: str = ""
    after_message: str = ""


@dataclass(frozen=True, slots=True)
class ModelQuestion:
    """A turn is about to choose its model."""

    session: SessionKey
    message: str
    model: str


@dataclass(frozen=True, slots=True)
class ModelWish:
    """The requested model, as `provider/model` or alias."""

    model: str


@dataclass(frozen=True, slots=True)
class Compacting:
    """A history is about to be compacted, or was; `tokens_after` is None before.

    A subscriber may add `messages` for the person.
    """

    session: SessionKey
    tokens_before: int
    tokens_after: int | None = None
    messages: tuple[str, ...] = ()


BEFORE_PROMPT = Query[PromptDraft, PromptChange]("before_prompt_build", permission="prompt")
BEFORE_MODEL = Query[ModelQuestion, ModelWish]("before_model_resolve", permission="model")
BEFORE_COMPACTION = Point[Compacting]("before_compaction")
AFTER_COMPACTION = Point[Compacting]("after_compaction")


def merge_changes(given: Sequence[Given[PromptChange]]) -> PromptChange:
    """Merge changes: the replacement with the highest priority wins, additions are concatenated."""
    values = [item.value for item in given]

    def together(name: str) -> str:
        return "\n\n".join(text for value in values if (text := getattr(value, name).strip()))

    replacement = next((value.system for value in values if value.system.strip()), "")
    return PromptChange(
        replacement,
        together("before_system"),
        together("after_system"),
        together("before_message"),
        together("after_message"),
    )
