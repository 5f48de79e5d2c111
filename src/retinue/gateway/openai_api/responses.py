"""Responses: decode requests, encode answers and events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from retinue.core.envelope import Outbound
from retinue.core.events import MessageFinished, TextDelta, TurnStatus
from retinue.core.keys import RunId
from retinue.core.messages import StopReason, ToolCall, Usage
from retinue.core.model import ToolSpec
from retinue.gateway.endpoint import error_body, to_json
from retinue.gateway.errors import BadField, RequestRefused, explain_failure
from retinue.gateway.openai_api.chat import KEEP_ALIVE, SpokenText, refuse_failed
from retinue.gateway.openai_api.requests import (
    ChosenFormat,
    ClientConversation,
    ResponseItem,
    ResponseRequest,
    make_tool,
    offers_tools,
    read_arguments,
    read_content,
    read_text,
    write_arguments,
)
from retinue.gateway.openai_api.run_stream import RunResult, RunStream
from retinue.gateway.openai_api.submit import RESPONSE_PREFIX

_INCOMPLETE = {StopReason.LENGTH: "max_output_tokens", StopReason.REFUSED: "content_filter"}


def read_input(body: ResponseRequest, conversation: ClientConversation) -> None:
    """Add the input of a request to a conversation."""
    conversation.add_instructions(body.instructions or "")
    if isinstance(body.input, str):
        conversation.add_user_message(read_content(body.input, "input"))
        return
    for at, item in enumerate(body.input):
        _read_item(item, conversation, f"input.{at}")


def _read_item(item: ResponseItem, conversation: ClientConversation, param: str) -> None:
    match item.type:
        case "message":
            match item.role:
                case "system" | "developer":
                    conversation.add_instructions(read_text(item.content, f"{param}.content"))
                case "assistant":
                    conversation.add_answer(read_text(item.content, f"{param}.content"))
                case "user":
                    conversation.add_user_message(read_content(item.content, f"{param}.content"))
                case None:
                    raise BadField(
                        f"{param}.role", "A message needs a role: `user`, `assistant`, `system` or `developer`."
                    )
        case "function_call":
            if not item.call_id or not item.name:
                raise BadField(param, "A `function_call` needs a `call_id` and a `name`.")
            conversation.add_answer("", [ToolCall(item.call_id, item.name, read_arguments(item.arguments or ""))])
        case "function_call_output":
            if not item.call_id:
                raise BadField(f"{param}.call_id", "A `function_call_output` needs a `call_id`.")
            conversation.add_tool_result(item.call_id, read_text(item.output, f"{param}.output"))
        case "reasoning":
            pass  # the reasoning of another model is not used
        case _:
            raise BadField(
                f"{param}.type",
                f"Items of the type '{item.type[:60]}' are not supported. Send messages, function calls and outputs.",
            )


def read_tools(body: ResponseRequest) -> tuple[ToolSpec, ...]:
    """The client's own tools."""
    if not offers_tools(body.tool_choice):
        return ()
    found = []
    for at, tool in enumerate(body.tools or ()):
        if tool.type != "function" or tool.name is None:
            raise BadField(
                f"tools.{at}.type", "Only tools of the type `function` are supported, in addition to the agent's own."
            )
        found.append(make_tool(tool.name, tool.description, tool.parameters, f"tools.{at}.name"))
    return tuple(found)


def refuse_unsupported(body: ResponseRequest) -> None:
    """Raise `BadField` for parameters that an agent cannot follow."""
    if body.background:
        raise BadField("background", "Background responses are not supported. Use `stream`.")


def read_run(response: str) -> RunId:
    """The run of a response."""
    return RunId(response.removeprefix(RESPONSE_PREFIX))


class ResponseWriter(Struct, frozen=True):
    """Encodes one response, as a whole or as events."""

    run: str
    created: int
    request: ResponseRequest

    def write(self, found: RunResult) -> dict[str, Any]:
        """The whole response; raises `RequestRefused` if the turn failed."""
        refuse_failed(found.outbound)
        return self._finished(found)

    async def stream(self, run: RunStream) -> AsyncIterator[str]:
        """The response while it is generated, as server-sent events."""
        events = _EventWriter()
        started = self._frame("in_progress", [], None)
        yield events.write("response.created", response=started)
        yield events.write("response.in_progress", response=started)
        spoken, text = SpokenText(), _MessageInProgress(f"msg_{self.run}")
        try:
            async for event in run.events():
                match event:
                    case None:
                        yield KEEP_ALIVE
                    case TextDelta(words):
                        for piece in text.add(spoken.add(words), events):
                            yield piece
                    case MessageFinished(message):
                        spoken.end(message.stop)
                    case Outbound():
                        refuse_failed(event)
                        for piece in self._end(event, spoken, text, events):
                            yield piece
        except Exception as error:  # noqa: BLE001 - border: the status is sent already, so the stream has the error
            shown = error_body(explain_failure(error, "/v1/responses"), error)["error"]
            yield events.write("response.failed", response=self._failed(shown["code"], shown["message"]))

    def _end(
        self, outbound: Outbound, spoken: SpokenText, text: _MessageInProgress, events: _EventWriter
    ) -> Iterator[str]:
        if outbound.text and not spoken.anything:
            yield from text.add(outbound.text, events)
        yield from text.end(events)
        at = len(text.items)
        for index, call in enumerate(outbound.handed, start=at):
            yield from _write_call_events(call, index, events)
        items = [*text.items, *map(_write_call, outbound.handed)]
        finished = self._finished(RunResult(outbound, spoken.stop)) | {"output": items}
        kind = "response.completed" if finished["status"] == "completed" else "response.incomplete"
        yield events.write(kind, response=finished)

    def _finished(self, found: RunResult) -> dict[str, Any]:
        outbound = found.outbound
        items = [_write_message(f"msg_{self.run}", outbound.text)] if outbound.text or not outbound.handed else []
        items += map(_write_call, outbound.handed)
        why = _INCOMPLETE.get(found.stop) if not outbound.handed else None
        frame = self._frame("incomplete" if why else "completed", items, outbound.usage)
        return frame | {"incomplete_details": {"reason": why} if why else None}

    def write_stored(self, outbound: Outbound | None, stop: StopReason) -> dict[str, Any]:
        """A response that was requested earlier, as it is now; None means that its turn has not ended."""
        if outbound is None:
            return self._frame("in_progress", [], None)
        try:
            refuse_failed(outbound)
        except RequestRefused as error:
            failed = self._failed(getattr(error, "kind", ""), str(error))
            return failed | {"status": "cancelled" if outbound.status is TurnStatus.ABORTED else "failed"}
        return self._finished(RunResult(outbound, stop))

    def _failed(self, kind: str, message: str) -> dict[str, Any]:
        code = "rate_limit_exceeded" if kind == "rate_limit_exceeded" else "server_error"
        return self._frame("failed", [], None) | {"error": {"code": code, "message": message}}

    def _frame(self, status: str, output: list[dict[str, Any]], usage: Usage | None) -> dict[str, Any]:
        request = self.request
        tools = [msgspec.to_builtins(tool) | {"strict": False} for tool in request.tools or ()]
        return {
            "id": f"{RESPONSE_PREFIX}{self.run}",
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "metadata": request.metadata or {},
            "model": request.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": request.previous_response_id,
            "store": True,
            "temperature": None,
            "text": {"format": _write_format(request)},
            "tool_choice": request.tool_choice if isinstance(request.tool_choice, str) else "auto",
            "tools": tools,
            "top_p": None,
            "truncation": "disabled",
            "usage": _write_usage(usage) if usage else None,
            "user": request.user,
        }


def _write_format(request: ResponseRequest) -> dict[str, Any]:
    wanted = request.text.format if request.text and request.text.format else ChosenFormat()
    return {"type": wanted.type} | ({"name": "answer", "schema": wanted.schema} if wanted.schema else {})


class _EventWriter:
    """Numbers and encodes the events of one stream."""

    def __init__(self) -> None:
        self.number = 0

    def write(self, kind: str, **content: Any) -> str:
        event = {"type": kind, "sequence_number": self.number, **content}
        self.number += 1
        return f"event: {kind}\ndata: {to_json(event)}\n\n"


class _MessageInProgress:
    """The message of a response while it is generated; it starts with the first text."""

    def __init__(self, identity: str) -> None:
        self.id = identity
        self.items: list[dict[str, Any]] = []
        self._text: list[str] = []

    def add(self, text: str, events: _EventWriter) -> Iterator[str]:
        place = {"item_id": self.id, "output_index": 0, "content_index": 0}
        if not self._text:
            item = _write_message(self.id, "") | {"status": "in_progress", "content": []}
            yield events.write("response.output_item.added", output_index=0, item=item)
            yield events.write("response.content_part.added", **place, part=_write_text(""))
        self._text.append(text)
        yield events.write("response.output_text.delta", **place, delta=text, logprobs=[])

    def end(self, events: _EventWriter) -> Iterator[str]:
        if not self._text:
            return
        place = {"item_id": self.id, "output_index": 0, "content_index": 0}
        text = "".join(self._text)
        yield events.write("response.output_text.done", **place, text=text, logprobs=[])
        yield events.write("response.content_part.done", **place, part=_write_text(text))
        item = _write_message(self.id, text)
        yield events.write("response.output_item.done", output_index=0, item=item)
        self.items.append(item)


def _write_call_events(call: ToolCall, index: int, events: _EventWriter) -> Iterator[str]:
    item = _write_call(call)
    begun = item | {"status": "in_progress", "arguments": ""}
    place = {"item_id": item["id"], "output_index": index}
    yield events.write("response.output_item.added", output_index=index, item=begun)
    yield events.write("response.function_call_arguments.delta", **place, delta=item["arguments"])
    yield events.write("response.function_call_arguments.done", **place, name=call.name, arguments=item["arguments"])
    yield events.write("response.output_item.done", output_index=index, item=item)


def _write_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _write_message(name: str, text: str) -> dict[str, Any]:
    content = [_write_text(text)]
    return {"id": name, "type": "message", "role": "assistant", "status": "completed", "content": content}


def _write_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": write_arguments(call),
        "status": "completed",
    }


def _write_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total,
    }
