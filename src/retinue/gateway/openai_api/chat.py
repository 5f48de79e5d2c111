"""Chat completions: decode requests, encode answers and chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from msgspec import Struct

from retinue.core.envelope import Outbound
from retinue.core.events import MessageFinished, TextDelta, TurnStatus
from retinue.core.messages import StopReason, ToolCall, Usage
from retinue.core.model import ToolSpec
from retinue.gateway.endpoint import error_body, to_json
from retinue.gateway.errors import BadField, RequestRefused, explain_failure
from retinue.gateway.openai_api.requests import (
    ChatMessage,
    ChatRequest,
    ClientConversation,
    make_tool,
    offers_tools,
    read_arguments,
    read_content,
    read_text,
    refuse_format,
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
    refuse_format(body.response_format, "response_format")
    if body.n is not None and body.n > 1:
        raise BadField("n", "An agent returns one answer: `n` must be 1.")
    if body.logprobs:
        raise BadField("logprobs", "An agent's answer has no `logprobs`.")
    if body.modalities and body.modalities != ["text"]:
        raise BadField("modalities", "An agent answers with text.")


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
        yield self._chunk({"role": "assistant", "content": "", "refusal": None}, None)
        spoken = SpokenText()
        try:
            async for event in run.events():
                match event:
                    case None:
                        yield KEEP_ALIVE
                    case TextDelta(text):
                        yield self._chunk({"content": spoken.add(text)}, None)
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
            yield self._chunk({"content": outbound.text}, None)
        for at, call in enumerate(outbound.handed):
            yield self._chunk({"tool_calls": [{"index": at, **_write_call(call)}]}, None)
        yield self._chunk({}, finish_reason(RunResult(outbound, spoken.stop)))
        if with_usage:
            frame = self._frame("chat.completion.chunk", [])
            yield f"data: {to_json(frame | {'usage': write_usage(outbound.usage)})}\n\n"

    def _chunk(self, delta: dict[str, Any], finish: str | None) -> str:
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


def finish_reason(found: RunResult) -> str:
    """The finish reason of the API."""
    return "tool_calls" if found.outbound.handed else _FINISH.get(found.stop, "stop")


def refuse_failed(outbound: Outbound) -> None:
    """Raise `RequestRefused` for a turn without an answer."""
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
