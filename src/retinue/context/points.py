"""Where plugins may step in when a prompt is built, a model is chosen or a history is summed up."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from retinue.core.keys import SessionKey
from retinue.hooks.bus import Given, Point, Query


class PromptDraft(Struct, frozen=True):
    """A prompt that is about to be sent, and the message it is for."""

    session: SessionKey
    system: str
    message: str


class PromptChange(Struct, frozen=True):
    """What a plugin wants of the prompt; an empty text is no wish.

    `system` replaces the stable block. The others add: before or after the session block, before or after the message.
    """

    system: str = ""
    before_system: str = ""
    after_system: str = ""
    before_message: str = ""
    after_message: str = ""


class ModelQuestion(Struct, frozen=True):
    """A turn is about to choose its model."""

    session: SessionKey
    message: str
    model: str


class ModelWish(Struct, frozen=True):
    """Another model, as `provider/model` or alias."""

    model: str


class Compacting(Struct, frozen=True):
    """A history is about to be summed up, or was; `tokens_after` is None before.

    A subscriber may add `messages`, which the person reads.
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
    """All wishes as one: of replacements the one with the highest priority wins, additions stand one after another."""
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
