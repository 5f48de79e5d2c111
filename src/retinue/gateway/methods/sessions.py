"""Sessions: list, read, change and follow them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import anyio
from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from retinue.core.envelope import Attachment, Inbound, Source
from retinue.core.keys import SessionId, SessionKey, SessionKind
from retinue.core.messages import AssistantMessage
from retinue.dispatch.reply import ParsedReply, VisibleStream, parse_reply, show_message
from retinue.gateway.auth.member_access import is_limited, may_see
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.gateway.methods.session_rows import describe_sessions
from retinue.runtime.channels.delivery import attach_media, find_media_root
from retinue.runtime.commands.session_api import SessionApi, describe_commands
from retinue.sessions.entries import (
    DECIDED,
    TURN_ENDED,
    UNANSWERED,
    Body,
    MessageAdded,
    Noted,
    SettingChanged,
    TranscriptEntry,
)
from retinue.sessions.export import export_json, export_markdown
from retinue.sessions.jsonl.codec import format_time
from retinue.sessions.protocol import StoredSessions
from retinue.sessions.search import search_transcripts
from retinue.sessions.session import (
    ARCHIVED,
    FORKED_FROM,
    LABEL,
    REASONING,
    VERBOSE,
    Session,
    recorded_person,
)
from retinue.sessions.tree import fork_entries
from retinue.wire import sessions as wire
from retinue.wire.frames import Done, SessionsChanged
from retinue.wire.messages import OfSession
from retinue.wire.protocol import GATEWAY_STREAM, ErrorCode

registry = MethodRegistry()

TAIL_BYTES = 1_000_000
"""How much of a long transcript is read for its newest messages."""
MAX_SENT_BYTES = 5_000_000
"""The largest file of an answer that clients get; a frame holds it in base64."""
FORK_PREFIX = "chat-"
"""The page names sessions that it starts like this, too."""
_VERDICTS = {"allow-once": "Allowed once", "allow-always": "Always allowed"}


def _session(call: Call, params: OfSession) -> SessionKey:
    return call.session(params.session_key, params.agent)


@registry.implements(wire.LIST)
async def list_sessions(call: Call, params: wire.ListSessions) -> wire.SessionList:
    home = call.runtime.home
    agents = (home.agent_id(params.agent),) if params.agent else home.config.agents.ids
    found = [session for agent in agents for session in call.runtime.agent(agent).store.list()]
    if is_limited(call.principal):
        found = [session for session in found if may_see(call.principal, session.key)]
    found.sort(key=_cursor_of, reverse=True)
    if params.cursor is not None:
        # By value and not by position: a session that was used in the meantime shifts the others.
        found = [session for session in found if _cursor_of(session) < params.cursor]
    found = [session for session in found if session.is_archived == params.archived]
    page = found[: params.limit]
    more = _cursor_of(page[-1]) if len(found) > len(page) else None
    return wire.SessionList(sessions=describe_sessions(call, page), next_cursor=more)


def _cursor_of(session: Session) -> str:
    return f"{format_time(session.updated_at)} {session.key.agent} {session.key.text}"


@registry.implements(wire.GET)
async def get_session(call: Call, params: OfSession) -> wire.FoundSession:
    key = _session(call, params)
    session = call.runtime.agent(key.agent).store.peek(key)
    rows = describe_sessions(call, [session] if session else [])
    return wire.FoundSession(key=key.text, agent=key.agent, session=rows[0] if rows else None)


@registry.implements(wire.HISTORY)
async def read_history(call: Call, params: wire.ReadHistory) -> wire.History:
    key = _session(call, params)
    parts = call.runtime.agent(key.agent)
    # The number is read first: an event that arrives meanwhile is then sent twice rather than never.
    seq = call.gateway.hub.position(key.text)
    session = parts.store.peek(key)
    found = HistoryPage([], [], 0)
    if session is not None:
        options = HistoryOptions(
            params.limit,
            parts.shared.tools.redact,
            parts.workspace.settings.heartbeat.ack_max_chars,
            heartbeats=key.kind is SessionKind.HEARTBEAT,
            raw=params.raw,
            skip=params.skip,
            messages=session.messages,
        )
        found = await anyio.to_thread.run_sync(read_messages, parts.store, session.id, options)
    return wire.History(
        session_key=key.text,
        session_id=session.id if session else None,
        entries=found.entries,
        total=found.total,
        notes=found.notes,
        epoch=call.gateway.hub.epoch,
        seq=seq,
    )


registry.implements(wire.CHAT_HISTORY)(read_history)


@registry.implements(wire.RESET)
async def reset(call: Call, params: OfSession) -> wire.ResetResult:
    key = _session(call, params)
    fresh = await call.runtime.runner(key).restart("reset")
    _publish(call, key, "reset")
    return wire.ResetResult(session_id=fresh)


@registry.implements(wire.COMPACT)
async def compact(call: Call, params: wire.CompactSession) -> wire.CompactResult:
    key = _session(call, params)
    return wire.CompactResult(text=await call.runtime.runner(key).compact(params.focus))


@registry.implements(wire.PATCH)
async def patch(call: Call, params: wire.PatchSession) -> wire.FoundSession:
    key = _session(call, params)
    session = SessionApi(call.runtime.dispatcher, call.runtime.runner(key), Inbound("", key))
    if params.model is not UNSET:  # first, because only the model can be refused
        await session.choose_model(params.model)
    if params.thinking is not UNSET:
        session.choose_thinking(params.thinking)
    for name, value in ((LABEL, params.label), (VERBOSE, params.verbose), (REASONING, params.reasoning)):
        if value is not UNSET:
            session.choose(name, value)
    if params.archived is not UNSET:
        _, stored = _stored(call, key)
        session.choose(ARCHIVED, str(stored.messages) if params.archived else None)
    _publish(call, key, "patched")
    return await get_session(call, OfSession(session_key=key.text))


@registry.implements(wire.SUBSCRIBE)
async def subscribe(call: Call, params: wire.Subscribe) -> wire.Subscribed:
    if call.connection is None:
        raise RequestRefused(
            ErrorCode.BAD_REQUEST, "Events are sent only over a WebSocket. Connect to one to subscribe."
        )
    stream = GATEWAY_STREAM if params.gateway else _session(call, params).text
    call.connection.require_room(stream)
    joined = call.connection.follow(stream, params.after, params.epoch)
    return wire.Subscribed(
        stream=stream, epoch=call.gateway.hub.epoch, seq=joined.seq, replayed=len(joined.frames), gap=joined.gap
    )


@registry.implements(wire.UNSUBSCRIBE)
async def unsubscribe(call: Call, params: wire.Subscribe) -> Done:
    if call.connection is not None:
        call.connection.unfollow(GATEWAY_STREAM if params.gateway else _session(call, params).text)
    return Done()


@registry.implements(wire.INTRODUCE)
async def introduce(call: Call, params: OfSession) -> wire.Introduction:
    key = _session(call, params)
    greeting = await call.runtime.greet(key, owner=call.principal.is_owner)
    display = await call.runtime.display(key)
    commands = describe_commands(call.runtime.dispatcher, key)
    session = call.runtime.agent(key.agent).store.peek(key)
    return wire.Introduction(
        **asdict(greeting),
        shows_thinking=display.thinking,
        verbose=display.verbose,
        commands=[command.name for command in commands],
        command_rows=tuple(wire.CommandRow(each.name, each.usage, each.summary) for each in commands),
        thinking=session.thinking if session else None,
        window=display.window,
        used=display.used,
    )


@registry.implements(wire.SEARCH)
async def search(call: Call, params: wire.SearchSessions) -> wire.FoundMessages:
    home = call.runtime.home
    agents = (home.agent_id(params.agent),) if params.agent else home.config.agents.ids
    stores = [call.runtime.agent(agent).store for agent in agents]
    rows = [(store, each) for store in stores for each in store.list() if may_see(call.principal, each.key)]
    rows.sort(key=lambda row: _cursor_of(row[1]), reverse=True)
    found, complete = await anyio.to_thread.run_sync(search_transcripts, rows, params.query, params.limit)
    hide = call.runtime.shared.tools.hide
    hits = [wire.FoundMessage(of.key.text, each.entry, each.role, each.at, hide(each.snippet)) for of, each in found]
    return wire.FoundMessages(hits, complete)


@registry.implements(wire.FORK)
async def fork(call: Call, params: wire.ForkSession) -> wire.ForkedSession:
    key = _session(call, params)
    store, session = _stored(call, key)
    _, tree = await anyio.to_thread.run_sync(store.read, session.id)
    fresh = call.session(f"agent:{key.agent}:{FORK_PREFIX}{secrets.token_hex(5)}", None)
    bodies: list[Body] = [*fork_entries(tree, params.before), SettingChanged(FORKED_FROM, key.text)]
    # A branch that begins with another first message gets its name from that message, like every conversation.
    if params.before is None or len(bodies) > 1:
        name = f"{'Copy' if params.before is None else 'Branch'} of {session.label or 'a conversation'}"
        bodies.append(SettingChanged(LABEL, name[:200]))
    store.begin(fresh, bodies)
    _publish(call, fresh, "forked")
    return wire.ForkedSession(session_key=fresh.text)


@registry.implements(wire.FILE)
async def read_sent_file(call: Call, params: wire.ReadSentFile) -> wire.SentFile:
    key = _session(call, params)
    store, session = _stored(call, key)
    agent = call.runtime.agent(key.agent)

    def read() -> tuple[list[Attachment], list[str]]:
        _, tree = store.read(session.id)
        answers = (entry.body.message for entry in tree.path if isinstance(entry.body, MessageAdded))
        texts = [answer.text for answer in answers if isinstance(answer, AssistantMessage) and "MEDIA" in answer.text]
        if not any(params.path in parse_reply(text).media for text in texts):
            raise RequestRefused(ErrorCode.NOT_FOUND, "No answer of this session sends that file.")
        return attach_media(find_media_root(agent, recorded_person(session)), [params.path], MAX_SENT_BYTES)

    attached, lost = await anyio.to_thread.run_sync(read)
    file = next((each for each in attached if not each.url), None)
    if file is None:
        raise RequestRefused(ErrorCode.NOT_FOUND, lost[0].strip("()") if lost else "It is an address, not a file.")
    return wire.SentFile(file.name, file.media_type, file.data)


@registry.implements(wire.EXPORT)
async def export(call: Call, params: wire.ExportSession) -> wire.ExportedSession:
    key = _session(call, params)
    store, session = _stored(call, key)
    header, tree = await anyio.to_thread.run_sync(store.read, session.id)
    write = export_json if params.form == "json" else export_markdown
    text = write(header, tree.path, redact=call.runtime.agent(key.agent).shared.tools.redact)
    return wire.ExportedSession(session_key=key.text, text=text)


@registry.implements(wire.ARCHIVE)
async def archive(call: Call, params: OfSession) -> Done:
    key = _session(call, params)
    store, _ = _stored(call, key)
    if call.runtime.dispatcher.is_active(key):
        raise RequestRefused(ErrorCode.CONFLICT, "The session is being answered. Stop it first with chat.abort.")
    store.delete(key)
    _publish(call, key, "archived")
    return Done()


def _stored(call: Call, key: SessionKey) -> tuple[StoredSessions, Session]:
    store = call.runtime.agent(key.agent).store
    session = store.peek(key)
    if session is None:
        raise RequestRefused(ErrorCode.NOT_FOUND, f"The session '{key.text}' has no messages yet.")
    return store, session


def _publish(call: Call, key: SessionKey, reason: str) -> None:
    changed = SessionsChanged(session_key=key.text, reason=reason)
    call.gateway.hub.publish(GATEWAY_STREAM, "sessions.changed", changed)


class HistoryOptions(Struct, frozen=True):
    """How a history is read. `heartbeats` means that the session consists of heartbeats."""

    limit: int
    redact: Callable[[str], str]
    ack_max_chars: int
    heartbeats: bool = False
    raw: bool = False
    skip: int = 0
    messages: int = 0
    """How many messages the session has, if that is known."""


class HistoryPage(Struct, frozen=True):
    """The newest messages of a transcript as its lines, what happened before the first one, and their total number."""

    entries: list[dict[str, Any]]
    notes: list[dict[str, str]]
    total: int


def read_messages(store: StoredSessions, session: SessionId, options: HistoryOptions) -> HistoryPage:
    """Read the newest messages of a transcript."""
    entries, unread = _read_entries(store, session, options)
    messages: list[TranscriptEntry] = []
    notes: dict[str, list[dict[str, str]]] = {}
    first: list[dict[str, str]] = []
    for entry in entries:
        match entry.body:
            case MessageAdded():
                messages.append(entry)
            case Noted() as noted if facts := _read_note(noted, options):
                (notes.setdefault(messages[-1].id, []) if messages else first).append(facts)
    end = max(0, len(messages) - options.skip)
    newest = messages[max(0, end - options.limit) : end]
    shown = [(entry, None) if options.raw else _show(entry, options) for entry in newest]
    exported = export_json(None, [entry for entry, _ in shown], redact=options.redact)
    lines: list[dict[str, Any]] = json.loads(exported)["entries"]
    for line, (entry, reply) in zip(lines, shown, strict=True):
        directives = _describe(reply, options) if reply else {}
        if directives:
            line["delivery"] = directives
        if entry.id in notes:
            line["notes"] = notes[entry.id]
    is_whole = len(newest) == end and not unread
    return HistoryPage(
        lines, first if is_whole else [], max(options.messages, len(messages)) if unread else len(messages)
    )


def _read_entries(
    store: StoredSessions, session: SessionId, options: HistoryOptions
) -> tuple[Sequence[TranscriptEntry], bool]:
    """Read the entries that a page needs, and whether older ones were not read.

    The end of a long transcript is enough for its newest messages; reading all of it takes seconds.
    """
    tree, is_whole = store.read_end(session, TAIL_BYTES)
    if is_whole:
        return tree.path, False
    if sum(isinstance(entry.body, MessageAdded) for entry in tree.path) > options.skip + options.limit:
        return tree.path, True
    return store.read(session)[1].path, False


def _read_note(noted: Noted, options: HistoryOptions) -> dict[str, str] | None:
    """Return what a note says to people: how a turn ended, what was decided, why a message was not answered."""
    data = {name: options.redact(value) for name, value in noted.data.items() if isinstance(value, str)}
    match noted.kind:
        case kind if kind == TURN_ENDED:
            return {"kind": data.get("status", ""), "text": data.get("error", "")}
        case kind if kind == DECIDED:
            verdict = _VERDICTS.get(data.get("verdict", ""), "Denied")
            return {"kind": "decided", "text": f"{verdict}: {data.get('title', '')} ({data.get('because', '')})"}
        case kind if kind == UNANSWERED:
            return {"kind": "unanswered", "text": data.get("text", ""), "why": data.get("why", "")}
    return None


def _show(entry: TranscriptEntry, options: HistoryOptions) -> tuple[TranscriptEntry, ParsedReply | None]:
    """The entry with the text that was delivered, and the directives of an answer."""
    body = entry.body
    if not isinstance(body, MessageAdded) or not isinstance(body.message, AssistantMessage):
        return entry, None
    is_beat = options.heartbeats or body.source is Source.HEARTBEAT
    stream = VisibleStream(heartbeat=is_beat, ack_max_chars=options.ack_max_chars)
    message, reply = show_message(body.message, stream)
    return replace(entry, body=replace(body, message=message)), reply


def _describe(reply: ParsedReply, options: HistoryOptions) -> dict[str, Any]:
    """The directives that a reply contains."""
    facts = {
        "media": [options.redact(each) for each in reply.media],
        "replyTo": reply.reply_to,
        "toCurrent": reply.to_current,
        "voice": reply.voice,
        "silent": reply.silent,
    }
    return {name: value for name, value in facts.items() if value}
