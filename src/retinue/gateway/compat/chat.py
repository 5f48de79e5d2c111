"""Chat completions: requests read, answers and chunks written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from retinue.core.envelope import Outbound
from retinue.core.events import MessageFinished, TextDelta, TurnStatus
from retinue.core.messages import StopReason, ToolCall, Usage
from retinue.core.model import ToolSpec
from retinue.gateway.compat.dialogue import Dialogue, make_tool, read_arguments, write_arguments
from retinue.gateway.compat.errors import BadField, error_body, to_json
from retinue.gateway.compat.hearing import Heard, Hearing
from retinue.gateway.compat.shapes import (
    ChatMessage,
    ChatRequest,
    offers_tools,
    read_content,
    read_words,
    refuse_format,
)
from retinue.gateway.gate import Refused
from retinue.gateway.gateway import explain_failure
from retinue.wire.protocol import ErrorCode

KEEP_ALIVE = ": still working\n\n"
_FINISH = {StopReason.LENGTH: "length", StopReason.REFUSED: "content_filter"}


def read_messages(messages: list[ChatMessage], dialogue: Dialogue) -> None:
    """Take the messages of a request into a dialogue."""
    for at, message in enumerate(messages):
        param = f"messages.{at}.content"
        match message.role:
            case "system" | "developer":
                dialogue.instruct(read_words(message.content, param))
            case "user":
                dialogue.hear(read_content(message.content, param))
            case "assistant":
                calls = [
                    ToolCall(call.id, call.function.name, read_arguments(call.function.arguments))
                    for call in message.tool_calls or ()
                ]
                dialogue.answer(read_words(message.content, param), calls)
            case "tool":
                if not message.tool_call_id:
                    raise BadField(f"messages.{at}.tool_call_id", "A message of the role `tool` names its call.")
                dialogue.take_result(message.tool_call_id, read_words(message.content, param))


def read_tools(body: ChatRequest) -> tuple[ToolSpec, ...]:
    """The program's own tools."""
    if body.functions:
        raise BadField("functions", "`functions` is the old way; send `tools`.")
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
    """Refuse what would be answered otherwise than it was meant."""
    refuse_format(body.response_format, "response_format")
    if body.n is not None and body.n > 1:
        raise BadField("n", "An agent gives one answer: `n` must be 1.")
    if body.logprobs:
        raise BadField("logprobs", "An agent's answer has no `logprobs`.")
    if body.modalities and body.modalities != ["text"]:
        raise BadField("modalities", "An agent answers with text.")


@dataclass(frozen=True, slots=True)
class Completion:
    """What all parts of one answer have in common."""

    run: str
    created: int
    model: str

    def write(self, heard: Heard) -> dict[str, Any]:
        """The whole answer; raises `Refused` where the turn failed."""
        refuse_failed(heard.outbound)
        calls = heard.outbound.handed
        message: dict[str, Any] = {"role": "assistant", "content": heard.outbound.text or None, "refusal": None}
        if calls:
            message["tool_calls"] = [_write_call(call) for call in calls]
        else:
            message["content"] = heard.outbound.text
        finish = finish_reason(heard)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._frame("chat.completion", [choice]) | {"usage": write_usage(heard.outbound.usage)}

    async def stream(self, hearing: Hearing, *, with_usage: bool) -> AsyncIterator[str]:
        """The answer as it is written, as server-sent events."""
        yield self._chunk({"role": "assistant", "content": "", "refusal": None}, None)
        spoken = Telling()
        try:
            async for event in hearing.events():
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
        except Exception as error:  # noqa: BLE001 - border: the status is sent already, so it is told in the stream
            failure = explain_failure(error, "/v1/chat/completions")
            yield f"data: {to_json(error_body(failure, error))}\n\n"
        yield "data: [DONE]\n\n"

    def _end(self, outbound: Outbound, spoken: Telling, *, with_usage: bool) -> Iterator[str]:
        refuse_failed(outbound)
        if outbound.text and not spoken.anything:
            yield self._chunk({"content": outbound.text}, None)
        for at, call in enumerate(outbound.handed):
            yield self._chunk({"tool_calls": [{"index": at, **_write_call(call)}]}, None)
        yield self._chunk({}, finish_reason(Heard(outbound, spoken.stop)))
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


@dataclass
class Telling:
    """What a stream has told: whether anything, and how the last message ended."""

    anything: bool = False
    between: bool = False
    stop: StopReason = StopReason.END

    def add(self, text: str) -> str:
        """The words to send: those of another message of the turn stand apart from those before."""
        apart = "\n\n" if self.between and self.anything else ""
        self.anything, self.between = True, False
        return apart + text

    def end(self, stop: StopReason) -> None:
        self.between, self.stop = True, stop


def finish_reason(heard: Heard) -> str:
    """Why the answer ends here, in the words of the interface."""
    return "tool_calls" if heard.outbound.handed else _FINISH.get(heard.stop, "stop")


def refuse_failed(outbound: Outbound) -> None:
    """Raise `Refused` for a turn that came to no answer."""
    match outbound.status:
        case TurnStatus.FAILED:
            raise Refused(ErrorCode.FAILED, outbound.error or "The turn failed.")
        case TurnStatus.ABORTED:
            raise Refused(ErrorCode.FAILED, "The turn was stopped before it had an answer.")


def write_usage(usage: Usage) -> dict[str, Any]:
    """What the turn used, all its model calls together."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    }


def _write_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": write_arguments(call)}
    return {"id": call.id, "type": "function", "function": function}
