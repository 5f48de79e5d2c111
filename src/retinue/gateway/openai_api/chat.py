"""Chat completions: decode requests, encode answers and chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from msgspec import Struct

from retinue.core.envelope import Outbound
from retinue.core.events import MessageFinished, TextDelta, TurnStatus
from retinue.core.messages import StopReason, ToolCall, Usage
from retinue.core.model import Failure, ToolSpec
from retinue.gateway.endpoint import error_body, to_json
from retinue.gateway.errors import BadField, ProviderFailed, RequestRefused, explain_failure
from retinue.gateway.openai_api.requests import (
    ChatMessage,
    ChatRequest,
    ClientConversation,
    CompletionRequest,
    make_tool,
    offers_tools,
    read_arguments,
    read_content,
    read_text,
    write_arguments,
)
from retinue.gateway.openai_api.run_stream import RunResult, RunStream
from retinue.wire.protocol import ErrorCode

KEEP_ALIVE = ": still working\n\n"
_FINISH = {StopReason.LENGTH: "length", StopReason.REFUSED: "content_filter"}


def read_messages(messages: list[ChatMessage], conversation: ClientConversation) -> None:
    """Add the messages of a request to a conversation."""
    for at, message in enumerate(messages):
        param = f"messages.{at}.content"
        match message.role:
            case "system" | "developer":
                conversation.add_instructions(read_text(message.content, param))
            case "user":
                conversation.add_user_message(read_content(message.content, param))
            case "assistant":
                calls = [
                    ToolCall(call.id, call.function.name, read_arguments(call.function.arguments))
                    for call in message.tool_calls or ()
                ]
                conversation.add_answer(read_text(message.content, param), calls)
            case "tool":
                if not message.tool_call_id:
                    raise BadField(
                        f"messages.{at}.tool_call_id", "A message of the role `tool` needs a `tool_call_id`."
                    )
                conversation.add_tool_result(message.tool_call_id, read_text(message.content, param))


def read_tools(body: ChatRequest) -> tuple[ToolSpec, ...]:
    """The client's own tools."""
    if body.functions:
        raise BadField("functions", "`functions` is not supported. Use `tools`.")
    if not offers_tools(body.tool_choice):
        return ()
    found = []
    for at, tool in enumerate(body.tools or ()):
        if tool.type != "function" or tool.function is None:
            raise BadField(f"tools.{at}.type", "Only tools of the type `function` are supported.")
        function = tool.function
        found.append(make_tool(function.name, function.description, function.parameters, f"tools.{at}.function.name"))
    return tuple(found)


def refuse_unsupported(body: ChatRequest) -> None:
    """Raise `BadField` for parameters that an agent cannot follow."""
    if body.n is not None and body.n > 1:
        raise BadField("n", "An agent returns one answer: `n` must be 1.")
    if body.logprobs:
        raise BadField("logprobs", "An agent's answer has no `logprobs`.")
    if body.modalities and body.modalities != ["text"]:
        raise BadField("modalities", "An agent answers with text.")


def read_prompt(body: CompletionRequest) -> str:
    """The prompt of a completion; raises `BadField` for several prompts and for what an agent cannot follow."""
    for name, value in (("n", body.n or 1), ("best_of", body.best_of or 1)):
        if value > 1:
            raise BadField(name, f"An agent returns one answer: `{name}` must be 1.")
    unsupported = {"echo": body.echo, "suffix": body.suffix, "logprobs": body.logprobs}
    for name, wanted in unsupported.items():
        if wanted:
            raise BadField(name, f"`{name}` is not supported.")
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if len(prompts) != 1:
        raise BadField("prompt", "Send one prompt in each request.")
    return prompts[0]


class Completion(Struct, frozen=True):
    """Encodes one answer, as a whole or in chunks."""

    run: str
    created: int
    model: str

    def write(self, found: RunResult) -> dict[str, Any]:
        """The whole answer; raises `RequestRefused` if the turn failed."""
        refuse_failed(found.outbound)
        calls = found.outbound.handed
        message: dict[str, Any] = {"role": "assistant", "content": found.outbound.text or None, "refusal": None}
        if calls:
            message["tool_calls"] = [_write_call(call) for call in calls]
        else:
            message["content"] = found.outbound.text
        finish = finish_reason(found)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._frame("chat.completion", [choice]) | {"usage": write_usage(found.outbound.usage)}

    async def stream(self, run: RunStream, *, with_usage: bool) -> AsyncIterator[str]:
        """The answer while it is generated, as server-sent events."""
        yield self._open()
        spoken = SpokenText()
        try:
            async for event in run.events():
                match event:
                    case None:
                        yield KEEP_ALIVE
                    case TextDelta(text):
                        yield self._chunk(spoken.add(text), None)
                    case MessageFinished(message):
                        spoken.end(message.stop)
                    case Outbound():
                        for piece in self._end(event, spoken, with_usage=with_usage):
                            yield piece
        except Exception as error:  # noqa: BLE001 - border: the status is sent already, so the stream has the error
            failure = explain_failure(error, "/v1/chat/completions")
            yield f"data: {to_json(error_body(failure, error))}\n\n"
        yield "data: [DONE]\n\n"

    def _end(self, outbound: Outbound, spoken: SpokenText, *, with_usage: bool) -> Iterator[str]:
        refuse_failed(outbound)
        if outbound.text and not spoken.anything:
            yield self._chunk(outbound.text, None)
        for at, call in enumerate(outbound.handed):
            yield self._delta({"tool_calls": [{"index": at, **_write_call(call)}]}, None)
        yield self._chunk(None, finish_reason(RunResult(outbound, spoken.stop)))
        if with_usage:
            frame = self._frame("chat.completion.chunk", [])
            yield f"data: {to_json(frame | {'usage': write_usage(outbound.usage)})}\n\n"

    def _open(self) -> str:
        return self._delta({"role": "assistant", "content": "", "refusal": None}, None)

    def _chunk(self, text: str | None, finish: str | None) -> str:
        return self._delta({} if text is None else {"content": text}, finish)

    def _delta(self, delta: dict[str, Any], finish: str | None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return f"data: {to_json(self._frame('chat.completion.chunk', [choice]))}\n\n"

    def _frame(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.run}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
            "choices": choices,
        }


class TextCompletion(Completion, frozen=True):
    """Encodes one answer in the older format, as a whole or in chunks."""

    def write(self, found: RunResult) -> dict[str, Any]:
        refuse_failed(found.outbound)
        choice = _write_text(found.outbound.text, finish_reason(found))
        return self._frame("", [choice]) | {"usage": write_usage(found.outbound.usage)}

    def _open(self) -> str:
        return ""

    def _chunk(self, text: str | None, finish: str | None) -> str:
        return f"data: {to_json(self._frame('', [_write_text(text or '', finish)]))}\n\n"

    def _frame(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        frame = super()._frame("text_completion", choices)
        return frame | {"id": f"cmpl-{self.run}"}


class SpokenText:
    """What a stream has sent: whether it sent any text, and how the last message ended."""

    def __init__(self) -> None:
        self.anything = False
        self.between = False
        self.stop = StopReason.END

    def add(self, text: str) -> str:
        """The text to send; a paragraph break separates the messages of a turn."""
        apart = "\n\n" if self.between and self.anything else ""
        self.anything, self.between = True, False
        return apart + text

    def end(self, stop: StopReason) -> None:
        self.between, self.stop = True, stop


def _write_text(text: str, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


def finish_reason(found: RunResult) -> str:
    """The finish reason of the API."""
    return "tool_calls" if found.outbound.handed else _FINISH.get(found.stop, "stop")


class ProviderStatus(Struct, frozen=True):
    """How OpenAI's API reports a failure of the provider."""

    status: int
    code: ErrorCode
    kind: str


_PROVIDER_STATUS = {
    Failure.AUTH: ProviderStatus(401, ErrorCode.UNAUTHENTICATED, "provider_authentication"),
    Failure.RATE_LIMIT: ProviderStatus(429, ErrorCode.RATE_LIMITED, "rate_limit_exceeded"),
    Failure.BILLING: ProviderStatus(429, ErrorCode.RATE_LIMITED, "insufficient_quota"),
    Failure.OVERFLOW: ProviderStatus(400, ErrorCode.BAD_REQUEST, "context_length_exceeded"),
    Failure.OVERLOADED: ProviderStatus(503, ErrorCode.BUSY, "provider_overloaded"),
    Failure.SERVER: ProviderStatus(502, ErrorCode.FAILED, "provider_error"),
    Failure.CONNECTION: ProviderStatus(502, ErrorCode.FAILED, "provider_unreachable"),
    Failure.TIMEOUT: ProviderStatus(504, ErrorCode.FAILED, "provider_timeout"),
}
"""Failures that have a meaning for the client; all others have the status 422."""


def refuse_failed(outbound: Outbound) -> None:
    """Raise `RequestRefused` for a turn without an answer."""
    found = _PROVIDER_STATUS.get(outbound.failure) if outbound.failure else None
    if found is not None and outbound.status is TurnStatus.FAILED:
        message = outbound.error or "The provider refused the request."
        later = outbound.retry_after
        raise ProviderFailed(found.code, message, status=found.status, kind=found.kind, retry_after=later)
    match outbound.status:
        case TurnStatus.FAILED:
            raise RequestRefused(ErrorCode.FAILED, outbound.error or "The turn failed.")
        case TurnStatus.ABORTED:
            raise RequestRefused(ErrorCode.FAILED, "The turn was stopped before it had an answer.")


def write_usage(usage: Usage) -> dict[str, Any]:
    """The usage of all model calls of the turn."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    }


def _write_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": write_arguments(call)}
    return {"id": call.id, "type": "function", "function": function}
