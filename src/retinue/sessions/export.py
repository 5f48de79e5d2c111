"""Exporting a session as Markdown or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, assert_never

from retinue.core.messages import AssistantMessage, Image, Message, Text, Thinking, ToolCall, ToolResult, UserMessage
from retinue.sessions.entries import (
    UNANSWERED,
    CallStarted,
    Compacted,
    Header,
    Interrupted,
    MessageAdded,
    ModelChanged,
    Noted,
    SettingChanged,
    ThinkingChanged,
    TranscriptEntry,
    Unknown,
)
from retinue.sessions.jsonl.codec import encode_line

Redact = Callable[[str], str]


def export_markdown(
    header: Header | None, entries: Iterable[TranscriptEntry], *, redact: Redact, thinking: bool = False
) -> str:
    """Return the conversation as Markdown. `redact` removes secrets; `thinking` includes the model's reasoning."""
    blocks = [_title(header)]
    for entry in entries:
        text = _describe(entry, thinking=thinking)
        if text:
            blocks.append(text)
    return redact("\n\n".join(blocks) + "\n")


def export_json(header: Header | None, entries: Iterable[TranscriptEntry], *, redact: Redact) -> str:
    """Return all entries as JSON, in the format of the transcript."""
    data = {
        "session": json.loads(encode_line(header)) if header else None,
        "entries": [json.loads(encode_line(entry)) for entry in entries],
    }
    return json.dumps(_redact_all(data, redact), ensure_ascii=False, indent=2) + "\n"


def _title(header: Header | None) -> str:
    if header is None:
        return "# Session"
    name = header.key.text if header.key else header.id
    return f"# Session `{name}`\n\nStarted {header.timestamp:%Y-%m-%d %H:%M} UTC, id `{header.id}`"


def _describe(entry: TranscriptEntry, *, thinking: bool) -> str:
    body = entry.body
    match body:
        case MessageAdded(message):
            return _describe_message(message, f"{entry.timestamp:%Y-%m-%d %H:%M}", thinking=thinking)
        case ModelChanged(model):
            return f"*Model: {model or 'the configured one'}*"
        case ThinkingChanged(level):
            return f"*Thinking: {level or 'as configured'}*"
        case Compacted(summary, tokens_before=tokens):
            return f"## Summary of what came before ({tokens:,} tokens)\n\n{_quote(summary)}"
        case Interrupted(reason):
            return f"*Interrupted: {reason}*"
        case Noted(kind, {"text": str(text), "why": str(why)}) if kind == UNANSWERED:
            return f"## Not answered, {entry.timestamp:%Y-%m-%d %H:%M}\n\n{text}\n\n*{why}*"
        case SettingChanged() | Noted() | CallStarted() | Unknown():
            return ""
    assert_never(body)


def _describe_message(message: Message, when: str, *, thinking: bool) -> str:
    match message:
        case UserMessage(content, sender):
            head = f"## {sender or 'User'} · {when}"
        case AssistantMessage(content, model):
            head = f"## Assistant · {when}" + (f" · {model}" if model else "")
        case ToolResult(_, tool, content, is_error):
            head = f"### Result of `{tool}`" + (" (error)" if is_error else "")
            output = (part.text if isinstance(part, Text) else f"[picture, {part.media_type}]" for part in content)
            return f"{head}\n\n{_fence(''.join(output))}"
        case _:
            assert_never(message)
    parts = [text for part in content if (text := _describe_part(part, thinking=thinking))]
    if isinstance(message, AssistantMessage) and message.error:
        parts.append(f"*Error: {message.error}*")
    return "\n\n".join([head, *parts])


def _describe_part(part: Text | Image | Thinking | ToolCall, *, thinking: bool) -> str:
    match part:
        case Text(text):
            return text.strip()
        case Image(media_type):
            return f"*[picture, {media_type}]*"
        case Thinking(text):
            return _quote(text) if thinking and text else ""
        case ToolCall(_, name, arguments):
            written = json.dumps(dict(arguments), ensure_ascii=False, indent=2)
            return f"**Calls `{name}`**\n\n{_fence(written, 'json')}"
    assert_never(part)


def _fence(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


def _redact_all(value: Any, redact: Redact) -> Any:
    match value:
        case str():
            return redact(value)
        case list():
            return [_redact_all(item, redact) for item in value]
        case dict():
            return {key: _redact_all(item, redact) for key, item in value.items()}
    return value
