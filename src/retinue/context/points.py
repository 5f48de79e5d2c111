"""Hook points for plugins: building a prompt, choosing a model, compacting a history."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from retinue.core.keys import SessionKey
from retinue.hooks import HookAnswer, HookPoint, HookQuery


class PromptDraft(Struct, frozen=True):
    """A prompt that is about to be sent, and the message it is for."""

    session: SessionKey
    system: str
    message: str
    session_id: str = ""
    workspace: str = ""


class PromptChange(Struct, frozen=True):
    """Changes of the prompt by a plugin; an empty text changes nothing.

    `system` replaces the stable block. The others add text before or after the session block or the message.
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
    session_id: str = ""
    workspace: str = ""


class ModelWish(Struct, frozen=True):
    """The requested model, as `provider/model` or alias."""

    model: str


class Compacting(Struct, frozen=True):
    """A history is about to be compacted, or was; `tokens_after` is None before.

    A subscriber may add `messages` for the person.
    """

    session: SessionKey
    tokens_before: int
    tokens_after: int | None = None
    messages: tuple[str, ...] = ()
    session_id: str = ""
    workspace: str = ""


BEFORE_PROMPT = HookQuery[PromptDraft, PromptChange]("before_prompt_build", permission="prompt")
BEFORE_MODEL = HookQuery[ModelQuestion, ModelWish]("before_model_resolve", permission="model")
BEFORE_COMPACTION = HookPoint[Compacting]("before_compaction")
AFTER_COMPACTION = HookPoint[Compacting]("after_compaction")


def merge_changes(given: Sequence[HookAnswer[PromptChange]]) -> PromptChange:
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
