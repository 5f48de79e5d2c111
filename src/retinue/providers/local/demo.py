"""The demo model: a model so small that it only shows that everything works.

It gets a short request instead of the agent's prompt, and its answers are kept to a few sentences: generation stops
when it repeats itself, and every answer ends with how to add a real model.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from msgspec.structs import replace

from retinue.core.messages import AssistantMessage, Message, Text, UserMessage, said
from retinue.core.model import ModelRequest, ReasoningEffort

DEMO_PROMPT = (
    "You are a very small demo model. Answer in one or two short sentences. You have no tools, no files, no internet "
    "and no memory, so never say that you did or will do something."
)
DEMO_NOTE = "(Demo model: no tools, no memory, often wrong. Add a real model: `retinue setup`)"
DEMO_WINDOW = 2_048
MAX_DEMO_TOKENS = 96
DEMO_TEMPERATURE = 0.1
"""So small a model goes astray if it may choose unlikely words."""
MAX_SENTENCES = 3
MAX_MESSAGES = 3
MAX_MESSAGE_CHARS = 800
_REPEATED_WORDS = 6
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_SENTENCE_CLOSED = re.compile(r"[.!?][\"')\]]*\s*$")


def demo_request(request: ModelRequest) -> ModelRequest:
    """Return the request as the demo model gets it: the last messages, without prompt, tools and recalled notes."""
    recent = [short for message in request.messages if (short := _shorten(message)) is not None][-MAX_MESSAGES:]
    return replace(
        request,
        stable=DEMO_PROMPT,
        session="",
        messages=tuple(recent),
        tools=(),
        max_output=min(request.max_output or MAX_DEMO_TOKENS, MAX_DEMO_TOKENS),
        thinking=ReasoningEffort.OFF,
        temperature=DEMO_TEMPERATURE if request.temperature is None else request.temperature,
    )


def _shorten(message: Message) -> Message | None:
    text = message.text.replace(DEMO_NOTE, "").strip()[:MAX_MESSAGE_CHARS]
    match message:
        case UserMessage():
            return said(text) if text else None
        case AssistantMessage():
            return AssistantMessage((Text(text),)) if text else None
        case _:
            return None


class ShortText:
    """The text of a demo answer, released sentence by sentence; `is_over` once no more is wanted."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._held = ""
        self.is_over = False

    def add(self, text: str) -> str:
        """Add generated text; return the sentences that are complete."""
        self._held += text
        *complete, self._held = _SENTENCE_END.split(self._held)
        return "".join(self._release(sentence) for sentence in complete)

    def finish(self) -> str:
        """Return what is left: a sentence that ended, or the only words there are."""
        held, self._held = self._held, ""
        if _SENTENCE_CLOSED.search(held) or not self._shown:
            return self._release(held)
        self.is_over = True
        return ""

    def _release(self, sentence: str) -> str:
        words = sentence.split()
        if self.is_over or not words:
            return ""
        kept = words[: _first_repetition(words)]
        said_before = " ".join(words).lower() in " ".join(self._shown).lower()
        if said_before or (self._shown and len(kept) < len(words)):
            self.is_over = True
            return ""
        self.is_over = len(kept) < len(words) or len(self._shown) + 1 >= MAX_SENTENCES
        separator = " " if self._shown else ""
        self._shown.append(" ".join(kept))
        return separator + self._shown[-1]


def _first_repetition(words: list[str]) -> int:
    """Return how many words there are before a run of them is said again."""
    seen: set[tuple[str, ...]] = set()
    lowered = [word.lower() for word in words]
    for end in range(3, len(lowered) + 1):
        if len(set(lowered[end - 3 : end])) == 1:
            return end - 2
        run = tuple(lowered[max(0, end - _REPEATED_WORDS) : end])
        if len(run) == _REPEATED_WORDS and run in seen:
            return end - _REPEATED_WORDS
        seen.add(run)
    return len(words)


async def shorten_answer(chunks: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """Yield the chunks of a streamed answer with its text kept short, and the note at its end."""
    text, ended = ShortText(), False
    async for chunk in chunks:
        choices = chunk.get("choices") if isinstance(chunk, Mapping) else None
        if not choices:
            yield chunk
            continue
        content = "".join(str((choice.get("delta") or {}).get("content") or "") for choice in choices)
        ended = any(choice.get("finish_reason") for choice in choices)
        shown = text.add(content)
        if ended:
            shown += text.finish()
        if ended or text.is_over:
            yield _piece(f"{shown}\n\n{DEMO_NOTE}", finish="stop")
            if not ended:
                return
        elif shown:
            yield _piece(shown)


def _piece(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}
