"""One turn explained from what was recorded: what was read, recalled, asked and spent, and what moved the cache."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import takewhile

from msgspec import Struct

from retinue.context.prompt.report import PromptReport, diff_reports
from retinue.core.codec import from_plain
from retinue.core.errors import UsageError
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import AssistantMessage, ToolResult, Usage, UserMessage
from retinue.runtime.agents.workspace import PROMPT_SENT, open_sessions
from retinue.runtime.home import Home
from retinue.security.untrusted_text import literal
from retinue.sessions.entries import BESIDE, CallStarted, Compacted, MessageAdded, Noted, TranscriptEntry
from retinue.tools.approvals.store import Approval

MAX_TEXT_CHARS = 300
MAX_ARGUMENT_CHARS = 120
_RECALLED = re.compile(r"^Source: (.+)$", re.MULTILINE)


class ModelCall(Struct, frozen=True, rename="camel"):
    """One answer of a model in the turn; `purpose` is the source of the call."""

    model: str
    purpose: str
    usage: Usage
    stop: str


class ToolUse(Struct, frozen=True, rename="camel"):
    """One tool call: what was asked for, and what came back."""

    tool: str
    arguments: str
    outcome: str
    chars: int = 0
    seconds: float | None = None


class CacheFacts(Struct, frozen=True, rename="camel"):
    """How much of the turn's input came from the provider's cache, and what invalidated it."""

    read: int
    written: int
    fresh: int
    moved: str | None = None


class RunExplained(Struct, frozen=True, rename="camel"):
    """A turn and everything that was recorded about it."""

    run: str
    session: str
    at: str
    seconds: float
    source: str
    message: str
    answer: str
    prompt_tokens: int
    files: tuple[str, ...]
    recalled: tuple[str, ...]
    tools: tuple[ToolUse, ...]
    approvals: tuple[dict[str, str], ...]
    model_calls: tuple[ModelCall, ...]
    total: Usage
    cache: CacheFacts
    compacted: bool


def explain_run(home: Home, key: SessionKey, run: str | None, approvals: Sequence[Approval]) -> RunExplained:
    """Explain a turn of a session, by the beginning of its run id, or its last one; raise `UsageError` if unknown."""
    store = open_sessions(home, key.agent)
    session = store.find(key)
    if session is None:
        raise UsageError(f"There is no session '{key}' yet. Talk to the agent first: retinue chat")
    entries = list(store.entries(session.id))
    wanted = _find_run(entries, run)
    if wanted is None:
        raise UsageError(
            f"'{key}' has no turn '{run}'. Without a turn, the last one is explained."
            if run
            else f"There was no turn in '{key}' yet. Talk to the agent first: retinue chat"
        )
    return _explain(entries, wanted, key, approvals)


def _explain(
    entries: Sequence[TranscriptEntry], wanted: RunId, key: SessionKey, approvals: Sequence[Approval]
) -> RunExplained:
    own = [entry for entry in entries if _run_of(entry) == wanted]
    first, last = own[0].timestamp, own[-1].timestamp
    messages = [entry.body for entry in own if isinstance(entry.body, MessageAdded)]
    said = [body.message for body in messages if isinstance(body.message, UserMessage)]
    texts = [
        body.message.text
        for body in messages
        if isinstance(body.message, AssistantMessage) and body.source not in BESIDE and body.message.text
    ]
    before = entries[: entries.index(own[0])]
    reports = list(_reports([*before, *own]))
    report = reports[-1] if reports else None
    calls = tuple(
        ModelCall(body.message.model, str(body.source), body.message.usage, str(body.message.stop))
        for body in messages
        if isinstance(body.message, AssistantMessage)
    )
    total = sum((call.usage for call in calls), Usage())
    return RunExplained(
        run=str(wanted),
        session=str(key),
        at=first.isoformat(),
        seconds=(last - first).total_seconds(),
        source=str(messages[0].source) if messages else "",
        message=literal("\n".join(message.text for message in said), MAX_TEXT_CHARS),
        answer=literal(texts[-1] if texts else "", MAX_TEXT_CHARS),
        prompt_tokens=report.total.tokens + sum(tool.tokens for tool in report.tools) if report else 0,
        files=tuple(file.name for file in report.files) if report else (),
        recalled=tuple(dict.fromkeys(source for message in said for source in _RECALLED.findall(message.preface))),
        tools=tuple(_tool_uses(own)),
        approvals=tuple(_describe(each) for each in approvals if _belongs(each, key, first, last)),
        model_calls=calls,
        total=total,
        cache=CacheFacts(total.cache_read, total.cache_write, total.input, _what_moved(reports, before)),
        compacted=any(isinstance(entry.body, Compacted) and first <= entry.timestamp <= last for entry in entries),
    )


def _run_of(entry: TranscriptEntry) -> RunId | None:
    body = entry.body
    return body.run if isinstance(body, MessageAdded | CallStarted) else None


def _find_run(entries: Sequence[TranscriptEntry], wanted: str | None) -> RunId | None:
    runs = (run for entry in reversed(entries) if (run := _run_of(entry)) is not None)
    return next((run for run in runs if wanted is None or run.startswith(wanted)), None)


def _reports(entries: Sequence[TranscriptEntry]) -> Iterator[PromptReport]:
    for entry in entries:
        if isinstance(entry.body, Noted) and entry.body.kind == PROMPT_SENT:
            yield from_plain(entry.body.data, PromptReport)


def _what_moved(reports: Sequence[PromptReport], before: Sequence[TranscriptEntry]) -> str | None:
    """Return what of the prompt changed for this turn, so that the provider's cache could not be used after it.

    A prompt is recorded if it changed, just before the first message of its turn.
    """
    since = takewhile(lambda entry: _run_of(entry) is None, reversed(before))
    if not any(isinstance(entry.body, Noted) and entry.body.kind == PROMPT_SENT for entry in since):
        return None
    if len(reports) == 1:
        return "the first prompt of this session"
    moved = diff_reports(reports[-2], reports[-1]).moved
    return f"{moved.name}: {moved.because}" if moved else None


def _tool_uses(own: Sequence[TranscriptEntry]) -> Iterator[ToolUse]:
    """Return the tool calls of the turn in their order, each with its result."""
    started = {entry.body.call_id: entry.timestamp for entry in own if isinstance(entry.body, CallStarted)}
    results = {
        entry.body.message.call_id: (entry.timestamp, entry.body.message)
        for entry in own
        if isinstance(entry.body, MessageAdded) and isinstance(entry.body.message, ToolResult)
    }
    for entry in own:
        if not isinstance(entry.body, MessageAdded) or not isinstance(entry.body.message, AssistantMessage):
            continue
        for call in entry.body.message.calls:
            arguments = literal(json.dumps(dict(call.arguments), ensure_ascii=False, default=str), MAX_ARGUMENT_CHARS)
            if call.id not in results:
                yield ToolUse(call.name, arguments, "no result")
                continue
            at, result = results[call.id]
            seconds = (at - started[call.id]).total_seconds() if call.id in started else None
            yield ToolUse(call.name, arguments, "error" if result.is_error else "ok", len(result.text), seconds)


def _belongs(approval: Approval, key: SessionKey, first: datetime, last: datetime) -> bool:
    return approval.request.session == key and first <= approval.asked_at <= last


def _describe(approval: Approval) -> dict[str, str]:
    return {
        "tool": approval.request.tool,
        "title": literal(approval.request.title, MAX_TEXT_CHARS),
        "state": str(approval.state),
        "by": approval.decided_by,
    }
