"""Questions about what a tainted request is about to do: the sink, what leaves, and the text that suggested it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from retinue.core.approval import ApprovalDecision, ApprovalRequest
from retinue.core.errors import ToolFailed
from retinue.core.messages import AssistantMessage, Message
from retinue.core.sinks import Sink
from retinue.tools.shell.explanation import show_compactly
from retinue.tools.tool import ToolContext

TAINTED_REASON = "the conversation contains untrusted text, which may have suggested it"
_QUOTED_CHARS = 200
_MIN_VALUE_CHARS = 4
_SENTENCE = re.compile(r"[^\n.!?]{3,2000}(?:[.!?]+(?=\s|$)|\n|$)|[^\n]{3,2000}")
_WORD = re.compile(r"\w{3,}")
_MARKER_LINE = re.compile(r"^\s*(?:<<<|SECURITY NOTICE|Source: |From: |Subject: |---)")
_MAX_QUOTED_TEXT = 100_000


class SinkQuestion(Struct, frozen=True):
    """A question about what a tainted request is about to do.

    `because` is why it needs approval. `clues` are texts of the call that the untrusted text may contain; the sentence
    with one of them is shown. `notes` are further sentences for the person.
    """

    sink: Sink
    tool: str
    title: str
    detail: str
    because: str = TAINTED_REASON
    clues: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def require_approval(question: SinkQuestion, context: ToolContext) -> ApprovalDecision:
    """Ask a question; raise `ToolFailed` unless the answer allows it."""
    explanation = (*(_explain(question, context) if context.tainted else ()), *question.notes)
    request = ApprovalRequest(
        context.call_id or context.run,
        question.tool,
        question.title,
        show_compactly(question.detail),
        context.agent,
        context.session,
        explanation=explanation,
    )
    answer = await context.ask(request)
    if not answer.allowed:
        raise ToolFailed(f"`{question.tool}` was not run: {answer.because}. (It needs approval: {question.because}.)")
    return answer


def _explain(question: SinkQuestion, context: ToolContext) -> Iterator[str]:
    reason = "" if TAINTED_REASON in question.because else " The conversation contains untrusted text."
    yield f"Asked because {question.because}.{reason}"
    quoted = find_sentence(question.clues or (question.detail,), context.request)
    if quoted:
        yield f"It may come from: {quoted}"
    yield f"Sink: {question.sink} (tools.askWhenTainted)."


def texts_in(value: Any) -> Iterator[str]:
    """Return every text in the arguments of a call."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from texts_in(each)
    elif isinstance(value, Iterable):
        for each in value:
            yield from texts_in(each)


def find_sentence(clues: Sequence[str], request: Sequence[Message]) -> str:
    """Return the sentence of untrusted text that a call most probably follows; empty if there is none.

    It contains a whole text of the call, or else shares the most words with the call.
    """
    texts = [
        message.text[:_MAX_QUOTED_TEXT]
        for message in reversed(request)
        if not isinstance(message, AssistantMessage) and message.label.is_foreign
    ]
    for clue in sorted((clue for clue in clues if len(clue) >= _MIN_VALUE_CHARS), key=len, reverse=True):
        for text in texts:
            at = text.find(clue)
            if at >= 0:
                return _quote(_sentence_at(text, at, len(clue)))
    wanted = {word.lower() for clue in clues for word in _WORD.findall(clue)}
    best, shared = "", 0
    for text in texts:
        for found in _SENTENCE.finditer(text):
            common = len(wanted & {word.lower() for word in _WORD.findall(found[0])})
            if common > shared and not _MARKER_LINE.match(found[0]):
                best, shared = found[0], common
    return _quote(best)


def _sentence_at(text: str, at: int, length: int) -> str:
    """Return the sentence around a place, with the whole of what was found if it is short enough."""
    start = max(text.rfind("\n", 0, at), text.rfind(". ", 0, at) + 1, at - _QUOTED_CHARS // 2, 0)
    end = text.find("\n", at + length)
    return text[start : end if end >= 0 else len(text)]


def _quote(text: str) -> str:
    shown = show_compactly(text.strip()).replace("\n", " ")
    return shown if len(shown) <= _QUOTED_CHARS else f"{shown[:_QUOTED_CHARS]}…"
