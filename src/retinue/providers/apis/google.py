"""Google's Gemini models, through the official SDK (the extra `google`)."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, assert_never, cast

from retinue.core.messages import (
    AssistantMessage,
    Image,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from retinue.core.model import Failure, ModelRequest, ReasoningEffort
from retinue.providers.apis.http_adapter import NO_TEXT, HttpAdapter, sampling
from retinue.providers.base import Credential, Endpoint
from retinue.providers.failures import CallFailed, failure_from_response
from retinue.providers.http_client import open_client
from retinue.providers.stream import Delta, Draft, to_json, whole_number

if TYPE_CHECKING:
    import httpx2
    from google.genai import Client, types

API_VERSION = "v1beta"
# Gemini 3 refuses a call of its current turn without a signature; this documented value is used for calls of
# another model.
FOREIGN_CALL_SIGNATURE = b"skip_thought_signature_validator"

_BUDGETS = {
    ReasoningEffort.MINIMAL: 512,
    ReasoningEffort.LOW: 2_048,
    ReasoningEffort.MEDIUM: 8_192,
    ReasoningEffort.HIGH: 16_384,
    ReasoningEffort.XHIGH: 24_576,
}
_REFUSALS = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE", "OTHER"}
)
_VERSION = re.compile(r"\A(.*?)/(v\d+(?:alpha|beta)?\d*)\Z")


class Google(HttpAdapter):
    """A provider that uses Gemini's generative API."""

    async def _converse(
        self, request: ModelRequest, credential: Credential | None, draft: Draft
    ) -> AsyncGenerator[Delta, None]:
        # The SDK's streams are nested so deeply that closing the outer one leaves the connection open until garbage
        # collection; one client per call closes it at once.
        client = open_client(self._endpoint.timeouts, self._endpoint.headers)
        async with client:
            sdk = self._open_sdk(credential, client)
            async with aclosing(_ask(sdk, request, credential, self._endpoint)) as chunks:
                async for chunk in chunks:
                    for piece in read_chunk(chunk, draft):
                        yield piece

    def _open_sdk(self, credential: Credential | None, client: httpx2.AsyncClient) -> Client:
        try:
            from google.genai import Client, types
        except ImportError:
            raise CallFailed(
                Failure.FORMAT, "Gemini models need the extra 'google'. Install it: pip install 'retinue[google]'"
            ) from None
        versioned = _VERSION.fullmatch(self._endpoint.base_url)
        options = types.HttpOptions(
            base_url=versioned[1] if versioned else self._endpoint.base_url,
            api_version=versioned[2] if versioned else API_VERSION,
            httpx_async_client=client,
            retry_options=types.HttpRetryOptions(attempts=1),
            timeout=int(self._endpoint.timeouts.idle * 1000),
        )
        return Client(api_key=credential.secret if credential else "none", vertexai=False, http_options=options)


async def _ask(
    sdk: Client, request: ModelRequest, credential: Credential | None, endpoint: Endpoint
) -> AsyncGenerator[types.GenerateContentResponse, None]:
    from google.genai import errors

    try:
        chunks = await sdk.aio.models.generate_content_stream(
            model=request.model.model,
            contents=cast("Any", contents_of(request)),
            config=cast("Any", config_of(request, endpoint)),
        )
        async for chunk in chunks:
            yield chunk
    except errors.APIError as error:
        headers = getattr(error.response, "headers", None) or {}
        body = error.details if isinstance(error.details, str) else to_json(error.details)
        raise failure_from_response(
            error.code, body, headers, secret=credential.secret if credential else None
        ) from None


def config_of(request: ModelRequest, endpoint: Endpoint) -> dict[str, Any]:
    """Return everything but the conversation."""
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    system = "\n\n".join(block for block in (request.stable, request.session) if block)
    if system:
        config["system_instruction"] = system
    if request.tools:
        declarations = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": dict(tool.parameters)}
            for tool in request.tools
        ]
        # The SDK would send `parameters_json_schema`, which Google accepts but compatible servers do not know.
        config["http_options"] = {"extra_body": {"tools": [{"functionDeclarations": declarations}]}}
    if request.max_output:
        config["max_output_tokens"] = request.max_output
    config |= sampling(request)
    if request.thinking is not ReasoningEffort.OFF and endpoint.describe(request.model).reasoning:
        config["thinking_config"] = {"include_thoughts": True, **_depth(request)}
    return config


def _depth(request: ModelRequest) -> dict[str, Any]:
    if request.model.model.startswith("gemini-2"):
        return {"thinking_budget": _BUDGETS[request.thinking]}
    return {"thinking_level": "LOW" if request.thinking in (ReasoningEffort.MINIMAL, ReasoningEffort.LOW) else "HIGH"}


def contents_of(request: ModelRequest) -> list[dict[str, Any]]:
    """Return the conversation; results of parallel calls are one user turn."""
    out: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for message in request.messages:
        if isinstance(message, ToolResult):
            results.extend(_result(message))
            continue
        if results:
            out.append({"role": "user", "parts": results})
            results = []
        match message:
            case UserMessage():
                lead = [{"text": message.preface}] if message.preface else []
                out.append({"role": "user", "parts": [*lead, *_parts(message.content)] or [{"text": NO_TEXT}]})
            case AssistantMessage():
                if parts := list(_answer_parts(message, request)):
                    out.append({"role": "model", "parts": parts})
            case _:
                assert_never(message)
    return [*out, {"role": "user", "parts": results}] if results else out


def _parts(content: tuple[Text | Image, ...]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for part in content:
        match part:
            case Text(text) if text:
                parts.append({"text": text})
            case Image(media_type, data):
                parts.append({"inline_data": {"mime_type": media_type, "data": _bytes(data)}})
    return parts


def _result(result: ToolResult) -> Iterator[dict[str, Any]]:
    answer = {"error" if result.is_error else "output": result.text or NO_TEXT}
    yield {"function_response": {"id": result.call_id, "name": result.tool, "response": answer}}
    yield from _parts(tuple(part for part in result.content if isinstance(part, Image)))


def _answer_parts(message: AssistantMessage, request: ModelRequest) -> Iterator[dict[str, Any]]:
    own = message.model.startswith(f"{request.model.provider}/")
    first_call = next(iter(message.calls), None)
    for part in message.content:
        match part:
            case Text(text):
                if text:
                    yield {"text": text}
            case Thinking():
                pass
            case ToolCall():
                call = {"function_call": {"id": part.id, "name": part.name, "args": dict(part.arguments)}}
                signature = _bytes(part.signature) if own and part.signature else b""
                if not own and part is first_call and request.model.model.startswith("gemini-3"):
                    signature = FOREIGN_CALL_SIGNATURE
                yield call | ({"thought_signature": signature} if signature else {})
            case _:
                assert_never(part)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def read_chunk(chunk: types.GenerateContentResponse, draft: Draft) -> Iterator[Delta]:
    """Add one chunk of a streamed answer to the draft."""
    if usage := chunk.usage_metadata:
        prompt = whole_number(usage.prompt_token_count)
        cached = min(whole_number(usage.cached_content_token_count), prompt)
        written = whole_number(usage.candidates_token_count) + whole_number(usage.thoughts_token_count)
        draft.usage = Usage(prompt - cached, written, cache_read=cached)
    if chunk.prompt_feedback and chunk.prompt_feedback.block_reason:
        draft.stop = StopReason.REFUSED
    for candidate in (chunk.candidates or [])[:1]:
        for part in (candidate.content and candidate.content.parts) or []:
            if (piece := _read_part(part, draft)) is not None:
                yield piece
        if candidate.finish_reason:
            reason = str(candidate.finish_reason.value)
            limits = {"MAX_TOKENS": StopReason.LENGTH} | dict.fromkeys(_REFUSALS, StopReason.REFUSED)
            draft.stop = limits.get(reason, StopReason.END)


def _read_part(part: types.Part, draft: Draft) -> Delta | None:
    if part.function_call and part.function_call.name:
        call = part.function_call
        signature = base64.b64encode(part.thought_signature).decode() if part.thought_signature else ""
        arguments = to_json(call.args or {})
        return draft.add_call(
            object(), call_id=call.id or "", name=call.name or "", arguments=arguments, signature=signature
        )
    if part.text:
        return draft.add_reasoning(part.text) if part.thought else draft.add_text(part.text)
    return None


def make_provider(endpoint: Endpoint) -> Google:
    return Google(endpoint)
