"""Submit the message of a request: find its agent and session, and start the session with the request's history."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request

from retinue.config.schema import Config
from retinue.core.clock import random_uuid
from retinue.core.envelope import AnswerFormat, Inbound
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Message, Usage, UserMessage
from retinue.core.model import ToolSpec
from retinue.dispatch.inbox import UnknownRun
from retinue.gateway.auth.member_access import require_for, require_own_run
from retinue.gateway.endpoint import principal_of
from retinue.gateway.errors import BadField
from retinue.gateway.gateway import Call, Gateway
from retinue.gateway.methods.messages import require_command_scope
from retinue.gateway.openai_api.requests import ClientConversation, ConversationStep, check_tools
from retinue.gateway.openai_api.run_stream import RunStream
from retinue.runtime.turns.answer_format import describe_format
from retinue.runtime.turns.user_message import INSTRUCTIONS
from retinue.sessions.entries import Body, MessageAdded
from retinue.tools.policy import TOOL_CALL, TOOL_SEARCH, canonical_name
from retinue.wire.protocol import ErrorCode, Scope

PRODUCT = "retinue"
DEFAULT_AGENT = "default"
SESSION_HEADER = "x-retinue-session-key"
RUN_HEADER = "x-retinue-run-id"
MODEL_HEADER = "x-retinue-model"
IDEMPOTENCY_HEADER = "idempotency-key"
QUEUE_HEADER = "x-retinue-queue"
BY_SESSION = "session"
"""The value of `QUEUE_HEADER` with which a request may join a running turn, by the session's queue mode."""
CHANNEL = "openai"
RESPONSE_PREFIX = "resp_"
MAX_HEADER_CHARS = 500


class AgentRequest(Struct, frozen=True):
    """The part of a request that selects the agent and the session, and the client's tools."""

    model: str
    user: str | None = None
    previous: RunId | None = None
    tools: Sequence[ToolSpec] = ()
    answer_format: AnswerFormat | None = None


class _SessionChoice(Struct, frozen=True):
    """The session of a request. A new session gets the request's history; an existing one has its own."""

    key: SessionKey
    bodies: tuple[Body, ...] | None = None
    """The entries of an earlier session, if this one is a copy of it."""


async def submit(
    gateway: Gateway, request: Request, wanted: AgentRequest, conversation: ClientConversation
) -> RunStream:
    """Submit the new message of a conversation, and follow the run that answers it."""
    call = Call(gateway, principal_of(request))
    agent = find_agent(gateway.runtime.home.config, wanted.model)
    require_for(call.principal, agent, Scope.WRITE)
    owner = call.principal.is_owner and call.principal.member is None
    if wanted.answer_format is not None:
        conversation.add_instructions(describe_format(wanted.answer_format))
    step = conversation.split(Label.OWNER if owner else Label.AGENT)
    require_command_scope(call.principal, step.text)
    idempotency = _read_header(request, IDEMPOTENCY_HEADER)
    token = f"{call.principal.token_id}:openai:{idempotency}" if idempotency else None
    session = _choose_session(call, request, wanted, agent, token)
    author = call.author(session.key)

    def has_tool(name: str) -> bool:
        own = canonical_name(name)
        return own in (TOOL_SEARCH, TOOL_CALL) or own in gateway.runtime.shared.tools.toolset

    inbound = Inbound(
        step.text,
        session.key,
        images=step.images,
        sender=author.sender,
        owner=author.owner,
        member=author.member,
        channel=CHANNEL,
        model=_read_header(request, MODEL_HEADER),
        instructions=conversation.instructions,
        tools=check_tools(wanted.tools, has_tool),
        results=step.results,
        own_turn=_read_header(request, QUEUE_HEADER) != BY_SESSION,
        answer_format=wanted.answer_format,
    )
    as_json = wanted.answer_format is not None
    stream = RunStream.begin(gateway, session.key, call.principal, as_json=as_json)
    try:
        _start_session(gateway, session, step, conversation)
        accepted = await gateway.runtime.dispatcher.submit(inbound, token)
    except BaseException:
        stream.leave()
        raise
    stream.follow(accepted.run)
    return stream


def reply_headers(stream: RunStream) -> dict[str, str]:
    """The headers that name the session and the run of an answer."""
    return {SESSION_HEADER: stream.session.text, RUN_HEADER: stream.run}


def new_conversation(gateway: Gateway, param: str) -> ClientConversation:
    """An empty conversation, which removes the secrets that this process knows from its messages."""
    return ClientConversation(param, gateway.runtime.home.redactor.hide_exact)


def _choose_session(
    call: Call, request: Request, wanted: AgentRequest, agent: AgentId, token: str | None
) -> _SessionChoice:
    if wanted.previous is not None:
        return _continue(call, wanted.previous, agent)
    named = _read_header(request, SESSION_HEADER)
    if named is not None:
        key = call.session(named, agent)
        if key.agent != agent:
            raise BadField("model", f"The session {key} belongs to the agent '{key.agent}', not to '{agent}'.")
        return _SessionChoice(key)
    if wanted.user:
        return _SessionChoice(_key(call, agent, "openai-user", _digest(wanted.user)))
    return _SessionChoice(_key(call, agent, "openai", _digest(token) if token else random_uuid()))


def _start_session(
    gateway: Gateway, session: _SessionChoice, step: ConversationStep, conversation: ClientConversation
) -> None:
    """Start a session with the request's history if the session has no messages yet."""
    store = gateway.runtime.agent(session.key.agent).store
    if session.bodies is not None:
        store.begin(session.key, session.bodies)
        return
    asked = {call.id for message in step.history if isinstance(message, AssistantMessage) for call in message.calls}
    unknown = [result.call_id for result in step.results if result.call_id not in asked]
    if unknown and store.peek(session.key) is None:
        raise BadField(conversation.param, f"No earlier tool call has the id '{unknown[0][:100]}'.")
    store.begin(session.key, _as_entries(step, conversation.instructions))


def _as_entries(step: ConversationStep, instructions: str) -> Iterable[Body]:
    """The history as transcript entries. Without a new message, the last user message carries the instructions."""
    messages: list[Message] = list(step.history)
    asked = [at for at, message in enumerate(messages) if isinstance(message, UserMessage)]
    if instructions and asked and not step.text.strip() and not step.images:
        question = messages[asked[-1]]
        assert isinstance(question, UserMessage)
        messages[asked[-1]] = replace(question, preface=f"{INSTRUCTIONS}\n\n{instructions}")
    return tuple(map(MessageAdded, messages))


def _continue(call: Call, run: RunId, agent: AgentId) -> _SessionChoice:
    """The session of an earlier response; a copy up to that response if the session has continued since then."""
    runtime = call.runtime
    try:
        session = runtime.services.inbox.session_of(run)
    except UnknownRun:
        raise BadField(
            "previous_response_id",
            f"There is no response '{RESPONSE_PREFIX}{run}', or it has expired. Omit the field to start a new session.",
            code=ErrorCode.NOT_FOUND,
        ) from None
    require_own_run(call.principal, session)
    if session.agent != agent:
        raise BadField("model", f"The earlier response belongs to the agent '{session.agent}', not to '{agent}'.")
    tree = runtime.agent(agent).store.open(session).tree
    upto = [at for at, entry in enumerate(tree.kept) if isinstance(entry.body, MessageAdded) and entry.body.run == run]
    ended = runtime.services.inbox.outcome(run) is not None
    others_wait = ended and runtime.services.inbox.is_unfinished(session)
    if not upto or not ended or (upto[-1] == len(tree.kept) - 1 and not others_wait):
        return _SessionChoice(session)
    bodies = tuple(_copy(entry.body) for entry in tree.kept[: upto[-1] + 1])
    summary = (replace(tree.summary, first_kept=None),) if tree.summary else ()
    return _SessionChoice(_key(call, agent, "openai", random_uuid()), (*summary, *bodies))


def _copy(body: Body) -> Body:
    """An entry for another transcript, without its usage, which is counted already."""
    if isinstance(body, MessageAdded) and isinstance(body.message, AssistantMessage):
        return replace(body, message=replace(body.message, usage=Usage()))
    return body


def _read_header(request: Request, name: str) -> str | None:
    value = request.headers.get(name, "").strip()
    if len(value) > MAX_HEADER_CHARS or not value.isprintable():
        raise BadField(name, f"The header `{name}` has at most {MAX_HEADER_CHARS} printable characters.")
    return value or None


def _key(call: Call, agent: AgentId, kind: str, name: str) -> SessionKey:
    return call.session(f"agent:{agent}:{kind}:{name}", None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def model_names(config: Config) -> Iterator[str]:
    """All names in the list of models: the short name of the default agent, then one name for each agent."""
    yield PRODUCT
    yield from (f"{PRODUCT}/{agent}" for agent in config.agents.ids)


def find_agent(config: Config, model: str) -> AgentId:
    """The agent that `retinue`, `retinue/<agent>` or `retinue:<agent>` means; raises `BadField` if there is none."""
    for mark in ("/", ":"):
        product, found, agent = model.strip().lower().partition(mark)
        if product == PRODUCT and (not found or agent == DEFAULT_AGENT):
            return config.agents.default_id
        if product == PRODUCT:
            try:
                return config.agents.resolve(agent).id
            except UsageError:
                break
    known = ", ".join(model_names(config))
    raise BadField(
        "model",
        f"There is no model '{model[:100]}'. The models are agents: {known}.",
        code=ErrorCode.NOT_FOUND,
        kind="model_not_found",
    )
