"""The endpoints of the OpenAI API."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from retinue.core.messages import StopReason
from retinue.core.text import estimate_tokens
from retinue.dispatch.inbox import UnknownRun
from retinue.gateway.auth.member_access import require_own_run
from retinue.gateway.endpoint import OpenAIEndpoint, plain_response, principal_of, refuse_if_disabled
from retinue.gateway.errors import BadField
from retinue.gateway.gateway import Gateway
from retinue.gateway.openai_api import chat, responses
from retinue.gateway.openai_api.requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    ResponseRequest,
    read_content,
    read_format,
)
from retinue.gateway.openai_api.run_stream import EventStream, RunStream
from retinue.gateway.openai_api.submit import (
    PRODUCT,
    RESPONSE_PREFIX,
    AgentRequest,
    find_agent,
    model_names,
    new_conversation,
    reply_headers,
    submit,
)
from retinue.runtime.turns.answer_format import extract_json
from retinue.runtime.turns.run_record import find_run
from retinue.wire.protocol import ErrorCode, Scope

MAX_TEXTS = 2_048
CLIENT_CLOSED_REQUEST = 499


async def complete_chat(gateway: Gateway, request: Request, body: ChatRequest) -> Response:
    """An agent's turn as a chat completion."""
    settings = gateway.runtime.home.config.gateway.http.endpoints.chat_completions
    refuse_if_disabled(settings, "chatCompletions")
    chat.refuse_unsupported(body)
    conversation = new_conversation(gateway, "messages")
    chat.read_messages(body.messages, conversation)
    answer_format = read_format(body.response_format, "response_format")
    wanted = AgentRequest(body.model, body.user, tools=chat.read_tools(body), answer_format=answer_format)
    run = await submit(gateway, request, wanted, conversation)
    completion = chat.Completion(run.run, _now(gateway), body.model)
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        return _stream(run, completion.stream(run, with_usage=with_usage))
    return await _answer(request, run, completion)


async def complete_text(gateway: Gateway, request: Request, body: CompletionRequest) -> Response:
    """An agent's turn as a completion of the older API; the prompt is the message."""
    refuse_if_disabled(gateway.runtime.home.config.gateway.http.endpoints.chat_completions, "chatCompletions")
    conversation = new_conversation(gateway, "prompt")
    conversation.add_user_message(read_content(chat.read_prompt(body), "prompt"))
    run = await submit(gateway, request, AgentRequest(body.model, body.user), conversation)
    completion = chat.TextCompletion(run.run, _now(gateway), body.model)
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        return _stream(run, completion.stream(run, with_usage=with_usage))
    return await _answer(request, run, completion)


async def create_response(gateway: Gateway, request: Request, body: ResponseRequest) -> Response:
    """An agent's turn as a response; `previous_response_id` continues its session."""
    refuse_if_disabled(gateway.runtime.home.config.gateway.http.endpoints.responses, "responses")
    responses.refuse_unsupported(body)
    conversation = new_conversation(gateway, "input")
    responses.read_input(body, conversation)
    previous = responses.read_run(body.previous_response_id) if body.previous_response_id else None
    answer_format = read_format(body.text.format if body.text else None, "text.format")
    wanted = AgentRequest(body.model, body.user, previous, responses.read_tools(body), answer_format)
    run = await submit(gateway, request, wanted, conversation)
    writer = responses.ResponseWriter(run.run, _now(gateway), body)
    return _stream(run, writer.stream(run)) if body.stream else await _answer(request, run, writer)


async def retrieve_response(gateway: Gateway, request: Request) -> Response:
    """A response that was requested earlier, also while its turn runs."""
    refuse_if_disabled(gateway.runtime.home.config.gateway.http.endpoints.responses, "responses")
    if request.query_params.get("stream") == "true":
        raise BadField("stream", "A stored response is not streamed. Omit `stream`.")
    run = responses.read_run(request.path_params["response"])
    try:
        accepted = gateway.runtime.services.inbox.message(run)
    except (UnknownRun, ValueError):
        name = f"{RESPONSE_PREFIX}{run}"[:100]
        raise BadField(
            "response_id", f"There is no response '{name}', or it has expired.", code=ErrorCode.NOT_FOUND
        ) from None
    inbound = accepted.inbound
    require_own_run(principal_of(request), inbound.session)
    outcome = gateway.runtime.services.inbox.outcome(run)
    if outcome is not None and inbound.answer_format is not None:
        outcome = replace(outcome, text=extract_json(outcome.text))
    answers = find_run(gateway.runtime.agent(inbound.session.agent).store, inbound.session, run).answers
    asked = ResponseRequest(f"{PRODUCT}/{inbound.session.agent}", "", inbound.instructions or None)
    writer = responses.ResponseWriter(run, int(accepted.accepted_at.timestamp()), asked)
    return plain_response(writer.write_stored(outcome, answers[-1].stop if answers else StopReason.END))


def _now(gateway: Gateway) -> int:
    return int(gateway.runtime.home.clock.now().timestamp())


def _stream(run: RunStream, events: AsyncIterator[str]) -> Response:
    return EventStream(run, events, reply_headers(run))


async def _answer(request: Request, run: RunStream, writer: chat.Completion | responses.ResponseWriter) -> Response:
    headers = reply_headers(run)
    try:
        found = await run.answer(request)
    finally:
        run.leave()
    if found is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return plain_response(writer.write(found), headers=headers)


async def list_models(gateway: Gateway, request: Request) -> Response:
    names = model_names(gateway.runtime.home.config)
    return plain_response({"object": "list", "data": [_describe_model(gateway, name) for name in names]})


async def show_model(gateway: Gateway, request: Request) -> Response:
    name: str = request.path_params["model"]
    find_agent(gateway.runtime.home.config, name)
    return plain_response(_describe_model(gateway, name))


def _describe_model(gateway: Gateway, name: str) -> dict[str, Any]:
    created = int(gateway.state.started_at.timestamp())
    return {"id": name, "object": "model", "created": created, "owned_by": PRODUCT}


async def embed(gateway: Gateway, request: Request, body: EmbeddingRequest) -> Response:
    """Vectors of texts, by the embedder of an agent's memory."""
    config, memories = gateway.runtime.home.config, gateway.runtime.shared.memories
    workspace = gateway.runtime.agent(config.agents.default_id).workspace
    if body.model not in memories.embedder_names(workspace):  # the name of an embedder means the default agent
        workspace = gateway.runtime.agent(find_agent(config, body.model)).workspace
    texts = _read_texts(body)
    name, vectors = await memories.embed(workspace, texts)
    if body.dimensions is not None and body.dimensions != vectors.shape[1]:
        raise BadField("dimensions", f"{name} supports only vectors of {vectors.shape[1]} dimensions.")
    is_base64 = body.encoding_format == "base64"
    rows = (base64.b64encode(row.astype("<f4").tobytes()).decode() if is_base64 else row.tolist() for row in vectors)
    data = [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)]
    tokens = sum(map(estimate_tokens, texts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return plain_response({"object": "list", "data": data, "model": name, "usage": usage})


def _read_texts(body: EmbeddingRequest) -> list[str]:
    from retinue.memory.embedding import MAX_TEXT_CHARS

    texts = [body.input] if isinstance(body.input, str) else body.input
    if not 0 < len(texts) <= MAX_TEXTS:
        raise BadField("input", f"Send 1 to {MAX_TEXTS} texts.")
    for at, text in enumerate(texts):
        if not text.strip():
            raise BadField(f"input.{at}", "A text must not be empty.")
        if len(text) > MAX_TEXT_CHARS:
            raise BadField(f"input.{at}", f"A text has at most {MAX_TEXT_CHARS} characters.")
    return texts


ENDPOINTS = (
    OpenAIEndpoint(
        "POST",
        "/v1/chat/completions",
        Scope.WRITE,
        complete_chat,
        "An answer of an agent, as OpenAI's chat completions.",
        ChatRequest,
        name="complete",
    ),
    OpenAIEndpoint(
        "POST",
        "/v1/responses",
        Scope.WRITE,
        create_response,
        "An answer of an agent, as OpenAI's responses.",
        ResponseRequest,
        name="respond",
    ),
    OpenAIEndpoint(
        "GET",
        "/v1/responses/{response}",
        Scope.READ,
        retrieve_response,
        "A response that was requested earlier.",
        name="response",
    ),
    OpenAIEndpoint(
        "POST",
        "/v1/completions",
        Scope.WRITE,
        complete_text,
        "An answer of an agent, as OpenAI's older completions.",
        CompletionRequest,
        name="complete_text",
    ),
    OpenAIEndpoint("GET", "/v1/models", Scope.READ, list_models, "All agents, as models."),
    OpenAIEndpoint("GET", "/v1/models/{model:path}", Scope.READ, show_model, "One agent, as a model."),
    OpenAIEndpoint(
        "POST",
        "/v1/embeddings",
        Scope.WRITE,
        embed,
        "Vectors of texts, by the embedder of an agent's memory.",
        EmbeddingRequest,
    ),
)
