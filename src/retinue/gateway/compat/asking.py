"""From a program's request to an accepted message: which session it belongs to, and what goes along with it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace
from starlette.requests import Request

from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import AssistantMessage, Message, Usage, UserMessage
from retinue.core.model import ToolSpec
from retinue.core.trust import Trust
from retinue.dispatch.inbox import UnknownRun
from retinue.gateway.app import principal_of
from retinue.gateway.compat.dialogue import Dialogue, Step, check_tools
from retinue.gateway.compat.errors import BadField
from retinue.gateway.compat.hearing import Hearing
from retinue.gateway.compat.names import find_agent
from retinue.gateway.gateway import Call, Gateway
from retinue.gateway.methods.agent import require_command_scope
from retinue.runtime.turns.user_message import INSTRUCTIONS
from retinue.sessions.entries import Body, MessageAdded, TranscriptEntry
from retinue.tools.tool_names import TOOL_CALL, TOOL_SEARCH, canonical_name
from retinue.wire.protocol import ErrorCode

SESSION_HEADER = "x-retinue-session-key"
RUN_HEADER = "x-retinue-run-id"
MODEL_HEADER = "x-retinue-model"
IDEMPOTENCY_HEADER = "idempotency-key"
CHANNEL = "openai"
RESPONSE_PREFIX = "resp_"
MOST_HEADER_CHARS = 500


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request wants, besides the words: the agent by its model name, and by what its session is found."""

    model: str
    user: str | None = None
    previous: RunId | None = None
    tools: Sequence[ToolSpec] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """The session of a request. One that begins with it gets the whole history, any other has its own already."""

    key: SessionKey
    bodies: tuple[Body, ...] | None = None
    """What a copy of an earlier conversation begins with."""


async def ask(gateway: Gateway, request: Request, wish: Wish, dialogue: Dialogue) -> Hearing:
    """Give an agent what a program says, and listen for the answer."""
    call = Call(gateway, principal_of(request))
    agent = find_agent(gateway.runtime.home.config, wish.model)
    owner = call.principal.is_owner
    step = dialogue.split(Trust.OWNER if owner else Trust.AGENT)
    require_command_scope(call.principal, step.text)
    idempotency = _read_header(request, IDEMPOTENCY_HEADER)
    token = f"{call.principal.token_id}:openai:{idempotency}" if idempotency else None
    place = _find_place(call, request, wish, agent, token)
    inbound = Inbound(
        step.text,
        place.key,
        images=step.images,
        sender=call.principal.sender,
        owner=owner,
        channel=CHANNEL,
        model=_read_header(request, MODEL_HEADER),
        instructions=dialogue.instructions,
        tools=check_tools(wish.tools, lambda name: _has_tool(gateway, name)),
        results=step.results,
    )
    hearing = Hearing.begin(gateway, place.key)
    try:
        _begin_session(gateway, place, step, dialogue)
        accepted = await gateway.runtime.dispatcher.submit(inbound, token)
    except BaseException:
        hearing.leave()
        raise
    hearing.run = accepted.run
    return hearing


def reply_headers(hearing: Hearing) -> dict[str, str]:
    """Where the answer can be found again."""
    return {SESSION_HEADER: hearing.session.text, RUN_HEADER: hearing.run}


def dialogue_for(gateway: Gateway, param: str) -> Dialogue:
    """An empty dialogue; what it takes is kept without the secrets that this process knows."""
    return Dialogue(param, gateway.runtime.home.redactor.hide_exact)


def _find_place(call: Call, request: Request, wish: Wish, agent: AgentId, token: str | None) -> _Place:
    if wish.previous is not None:
        return _continue(call.gateway, wish.previous, agent)
    named = _read_header(request, SESSION_HEADER)
    if named is not None:
        key = call.session(named, agent)
        if key.agent != agent:
            raise BadField("model", f"The session {key} belongs to the agent '{key.agent}', not to '{agent}'.")
        return _Place(key)
    if wish.user:
        return _Place(_key(agent, "openai-user", _digest(wish.user)))
    return _Place(_key(agent, "openai", _digest(token) if token else random_uuid()))


def _begin_session(gateway: Gateway, place: _Place, step: Step, dialogue: Dialogue) -> None:
    """Begin a session with what was said before, where it has nothing of its own yet."""
    store = gateway.runtime.agent(place.key.agent).store
    if place.bodies is not None:
        store.begin(place.key, place.bodies)
        return
    asked = {call.id for message in step.history if isinstance(message, AssistantMessage) for call in message.calls}
    unknown = [result.call_id for result in step.results if result.call_id not in asked]
    if unknown and store.peek(place.key) is None:
        raise BadField(dialogue.param, f"No tool call before it has the id '{unknown[0][:100]}'.")
    store.begin(place.key, _as_entries(step, dialogue.instructions))


def _as_entries(step: Step, instructions: str) -> Iterable[Body]:
    """The history as a transcript has it; where nothing new is said, its last question carries the instructions."""
    messages: list[Message] = list(step.history)
    asked = [at for at, message in enumerate(messages) if isinstance(message, UserMessage)]
    if instructions and asked and not step.text.strip() and not step.images:
        question = messages[asked[-1]]
        assert isinstance(question, UserMessage)
        messages[asked[-1]] = replace(question, preface=f"{INSTRUCTIONS}\n\n{instructions}")
    return tuple(map(MessageAdded, messages))


def _continue(gateway: Gateway, run: RunId, agent: AgentId) -> _Place:
    """The session of an earlier response; a copy of it up to there where the conversation went on meanwhile."""
    runtime = gateway.runtime
    try:
        session = runtime.services.inbox.session_of(run)
    except UnknownRun:
        raise BadField(
            "previous_response_id",
            f"There is no response '{RESPONSE_PREFIX}{run}' (any more). Leave it out to begin a new conversation.",
            code=ErrorCode.NOT_FOUND,
        ) from None
    if session.agent != agent:
        raise BadField("model", f"The earlier response is the agent '{session.agent}'s, not '{agent}'s.")
    tree = runtime.agent(agent).store.open(session).tree
    upto = [at for at, entry in enumerate(tree.kept) if _run_of(entry) == run]
    ended = runtime.services.inbox.outcome(run) is not None
    others_wait = ended and runtime.services.inbox.is_unfinished(session)
    if not upto or not ended or (upto[-1] == len(tree.kept) - 1 and not others_wait):
        return _Place(session)
    bodies = tuple(_copy(entry.body) for entry in tree.kept[: upto[-1] + 1])
    summary = (replace(tree.summary, first_kept=None),) if tree.summary else ()
    return _Place(_key(agent, "openai", random_uuid()), (*summary, *bodies))


def _copy(body: Body) -> Body:
    """An entry for another transcript; what it cost was counted where it was said."""
    if isinstance(body, MessageAdded) and isinstance(body.message, AssistantMessage):
        return replace(body, message=replace(body.message, usage=Usage()))
    return body


def _run_of(entry: TranscriptEntry) -> RunId | None:
    return entry.body.run if isinstance(entry.body, MessageAdded) else None


def _has_tool(gateway: Gateway, name: str) -> bool:
    own = canonical_name(name)
    return own in (TOOL_SEARCH, TOOL_CALL) or own in gateway.runtime.shared.tools.toolset


def _read_header(request: Request, name: str) -> str | None:
    value = request.headers.get(name, "").strip()
    if len(value) > MOST_HEADER_CHARS or not value.isprintable():
        raise BadField(name, f"The header `{name}` has at most {MOST_HEADER_CHARS} printable characters.")
    return value or None


def _key(agent: AgentId, kind: str, name: str) -> SessionKey:
    return SessionKey.parse(f"agent:{agent}:{kind}:{name}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
