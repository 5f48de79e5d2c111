"""Repairing histories: each tool call gets exactly one result, as providers require, also after a crash."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import assert_never

from msgspec.structs import replace

from retinue.core.messages import (
    AssistantMessage,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    memoize_per_message,
)
from retinue.sessions.entries import Interrupted, MessageAdded, TranscriptEntry
from retinue.sessions.protocol import StoredTranscript

RESULT_LOST = (
    "interrupted: this call was started, but its result was lost. It may have taken effect; "
    "check before you run it again."
)
NEVER_STARTED = "interrupted: this call was not run."
OUTCOME_UNKNOWN = (
    "interrupted: there is no result of this call. It may or may not have run; check before you repeat it."
)


def repair(
    messages: Sequence[Message], started: Collection[str] | None = None
) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """Return the messages in an order that providers accept, and notes about the changes.

    A call without a result gets one that says so: `started` are the calls known to have been about to take effect, None
    if that is unknown. Results without a call and empty answers are omitted. So is a truncated answer at the end: the
    turn continues by answering again, and many models refuse a request that ends with their own message.
    """
    tidy = list(_tidy.of_all(messages))
    notes = [f"message {at} is empty and was dropped" for at, message in enumerate(tidy) if message is None]
    while tidy and (tidy[-1] is None or _is_cut_off(tidy[-1])):
        if tidy.pop() is not None:
            notes.append(f"message {len(tidy)} was cut off at the end and was left out")
    if not any(_uses_tools.of_all(messages)):
        return tuple(filter(None, tidy)), tuple(notes)
    results = _match_results(tidy)
    used = {at for at, _ in results.values()}
    repaired: list[Message] = []
    for at, message in enumerate(tidy):
        match message:
            case AssistantMessage():
                repaired.append(message)
                for call in message.calls:
                    result = results.get((at, call.id))
                    if result is None:
                        notes.append(f"call {call.id} of `{call.name}` has no result; one was added")
                    repaired.append(_interrupted(call, started) if result is None else result[1])
            case UserMessage():
                repaired.append(message)
            case ToolResult() if at not in used:
                notes.append(f"a result for call {message.call_id} has no call and was dropped")
    return tuple(repaired), tuple(notes)


def find_unanswered(messages: Sequence[Message], started: Collection[str]) -> tuple[ToolResult, ...]:
    """Return the missing results of a history, as `repair` would add them."""
    there = {id(message) for message in messages}
    repaired, _ = repair(messages, started)
    return tuple(message for message in repaired if isinstance(message, ToolResult) and id(message) not in there)


@memoize_per_message
def _tidy(message: Message) -> Message | None:
    """Return the message without parts that providers reject, or None if nothing is left."""
    match message:
        case AssistantMessage(content):
            seen: set[str] = set()
            parts = []
            for part in content:
                match part:
                    case Text(text) if not text.strip():
                        continue
                    case ToolCall(call_id, name) if not call_id or not name or call_id in seen:
                        continue
                    case ToolCall(call_id):
                        seen.add(call_id)
                parts.append(part)
            if all(isinstance(part, Thinking) for part in parts):
                return None
            return message if len(parts) == len(content) else replace(message, content=tuple(parts))
        case UserMessage(content, preface=preface):
            return message if content or preface else None
        case ToolResult():
            return message
        case _:
            assert_never(message)


@memoize_per_message
def _uses_tools(message: Message) -> bool:
    return isinstance(message, ToolResult) or (isinstance(message, AssistantMessage) and bool(message.calls))


def _is_cut_off(message: Message) -> bool:
    """Whether a message is an answer that was aborted or failed while it arrived, without calls that may have run."""
    cut_off = (StopReason.ABORTED, StopReason.ERROR)
    return isinstance(message, AssistantMessage) and message.stop in cut_off and not message.calls


def _match_results(messages: Sequence[Message | None]) -> dict[tuple[int, str], tuple[int, ToolResult]]:
    """Return the result of each call: the first one after it, before its id is used again."""
    asked: dict[str, int] = {}
    found: dict[tuple[int, str], tuple[int, ToolResult]] = {}
    for at, message in enumerate(messages):
        match message:
            case AssistantMessage():
                for call in message.calls:
                    asked[call.id] = at
            case ToolResult(call_id) if call_id in asked:
                found.setdefault((asked[call_id], call_id), (at, message))
    return found


def _interrupted(call: ToolCall, started: Collection[str] | None) -> ToolResult:
    if started is None:
        text = OUTCOME_UNKNOWN
    else:
        text = RESULT_LOST if call.id in started else NEVER_STARTED
    return ToolResult(call.id, call.name, (Text(text),), is_error=True)


def close_interrupted_turn(transcript: StoredTranscript, reason: str) -> TranscriptEntry | None:
    """Add an `interrupted` result to every tool call without a result, so that none is silently repeated.

    To be called by the process that holds the session's lease, before the next turn. Return the entry that records it,
    or None if the last turn was complete.
    """
    tree = transcript.tree
    last_message = tree.messages[-1] if tree.messages else None
    if isinstance(last_message, AssistantMessage) and not last_message.calls:
        return None  # the last turn ended with an answer; searching for open calls costs time with every message
    missing = find_unanswered(tree.messages, tree.started_calls)
    if not missing:
        return None
    last = tree.kept[-1].body
    assert isinstance(last, MessageAdded)
    for result in missing:
        transcript.append(replace(last, message=result))
    return transcript.append(Interrupted(reason, tuple(result.call_id for result in missing), last.run))
