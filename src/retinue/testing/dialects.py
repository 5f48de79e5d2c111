"""The wire formats of real providers, written from a scripted reply."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import ceil
from typing import Any

from retinue.providers.stream import to_json
from retinue.testing.replies import Reply

PIECE = 7
"""Characters per chunk: small enough that every answer has several chunks."""

MAX_PIECES = 4_000
"""A very long answer has larger chunks instead of more of them, or a test spends its time on encoding them."""

SIGNATURE = "c2lnbmVk"


def _cut(text: str) -> Iterator[str]:
    size = max(PIECE, ceil(len(text) / MAX_PIECES))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _data(value: object) -> bytes:
    return f"data: {to_json(value)}\n\n".encode()


class Dialect(ABC):
    """The format of a provider's streamed answers."""

    keepalive = b": keepalive\n\n"

    @abstractmethod
    def content(self, reply: Reply) -> Iterator[bytes]:
        """Return the answer up to the end of the content."""

    @abstractmethod
    def ending(self, reply: Reply) -> Iterator[bytes]:
        """The end of a complete answer."""

    @abstractmethod
    def error(self, reply: Reply) -> dict[str, Any]:
        """Return the body of an HTTP error."""


class ChatDialect(Dialect):
    """OpenAI chat completions."""

    def content(self, reply: Reply) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})
        for piece in _cut(reply.thinking):
            yield self._chunk({"reasoning_content": piece})
        for piece in _cut(reply.text):
            yield self._chunk({"content": piece})
        for index, call in enumerate(reply.calls):
            head = {"index": index, "id": call.id or f"call_{index}", "type": "function"}
            yield self._chunk({"tool_calls": [head | {"function": {"name": call.name, "arguments": ""}}]})
            for piece in _cut(call.arguments):
                yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    def ending(self, reply: Reply) -> Iterator[bytes]:
        reason = "length" if reply.cut_short else "tool_calls" if reply.calls else "stop"
        yield self._chunk({}, reason)
        usage = {
            "prompt_tokens": reply.usage.prompt,
            "completion_tokens": reply.usage.output,
            "prompt_tokens_details": {"cached_tokens": reply.usage.cache_read},
        }
        yield _data({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    def error(self, reply: Reply) -> dict[str, Any]:
        return {"error": {"message": reply.text, "type": "error", "code": None}}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _data({"id": "c", "object": "chat.completion.chunk", "choices": [choice]})


class ResponsesDialect(Dialect):
    """OpenAI responses."""

    def content(self, reply: Reply) -> Iterator[bytes]:
        yield self._event("response.created", response={"id": "r", "status": "in_progress"})
        position = 0
        if reply.thinking:
            item = {"type": "reasoning", "id": "rs_1", "summary": []}
            yield self._event("response.output_item.added", output_index=0, item=item)
            for piece in _cut(reply.thinking):
                yield self._event("response.reasoning_summary_text.delta", output_index=0, delta=piece)
            done = item | {"encrypted_content": SIGNATURE}
            yield self._event("response.output_item.done", output_index=0, item=done)
            position = 1
        if reply.text:
            item = {"type": "message", "id": "m_1", "role": "assistant"}
            yield self._event("response.output_item.added", output_index=position, item=item)
            for piece in _cut(reply.text):
                yield self._event("response.output_text.delta", output_index=position, delta=piece)
            position += 1
        for number, call in enumerate(reply.calls):
            index = position + number
            call_id = call.id or f"call_{number}"
            head = {"type": "function_call", "id": f"fc_{number}", "call_id": call_id, "name": call.name}
            yield self._event("response.output_item.added", output_index=index, item=head | {"arguments": ""})
            for piece in _cut(call.arguments):
                yield self._event("response.function_call_arguments.delta", output_index=index, delta=piece)

    def ending(self, reply: Reply) -> Iterator[bytes]:
        usage = {
            "input_tokens": reply.usage.prompt,
            "output_tokens": reply.usage.output,
            "input_tokens_details": {"cached_tokens": reply.usage.cache_read},
        }
        if reply.cut_short:
            response = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": usage}
            yield self._event("response.incomplete", response=response)
        else:
            yield self._event("response.completed", response={"status": "completed", "usage": usage})

    def error(self, reply: Reply) -> dict[str, Any]:
        return {"error": {"message": reply.text, "type": "error", "code": None}}

    def _event(self, kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\n".encode() + _data({"type": kind, **fields})


class MessagesDialect(Dialect):
    """Anthropic messages."""

    keepalive = b'event: ping\ndata: {"type":"ping"}\n\n'

    def content(self, reply: Reply) -> Iterator[bytes]:
        usage = {
            "input_tokens": reply.usage.input,
            "cache_read_input_tokens": reply.usage.cache_read,
            "cache_creation_input_tokens": reply.usage.cache_write,
            "output_tokens": 1,
        }
        yield self._event("message_start", message={"id": "m", "role": "assistant", "content": [], "usage": usage})
        index = 0
        if reply.thinking:
            pieces = [{"type": "thinking_delta", "thinking": piece} for piece in _cut(reply.thinking)]
            pieces.append({"type": "signature_delta", "signature": SIGNATURE})
            yield from self._block(index, {"type": "thinking", "thinking": "", "signature": ""}, pieces)
            index += 1
        if reply.text:
            pieces = [{"type": "text_delta", "text": piece} for piece in _cut(reply.text)]
            yield from self._block(index, {"type": "text", "text": ""}, pieces)
            index += 1
        for number, call in enumerate(reply.calls):
            pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in _cut(call.arguments)]
            head = {"type": "tool_use", "id": call.id or f"toolu_{number}", "name": call.name, "input": {}}
            yield from self._block(index + number, head, pieces)

    def ending(self, reply: Reply) -> Iterator[bytes]:
        reason = "max_tokens" if reply.cut_short else "tool_use" if reply.calls else "end_turn"
        usage = {"output_tokens": reply.usage.output}
        yield self._event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)
        yield self._event("message_stop")

    def error(self, reply: Reply) -> dict[str, Any]:
        return {"type": "error", "error": {"type": "error", "message": reply.text}}

    def _block(self, index: int, head: dict[str, Any], pieces: list[dict[str, Any]]) -> Iterator[bytes]:
        yield self._event("content_block_start", index=index, content_block=head)
        yield self.keepalive
        for piece in pieces:
            yield self._event("content_block_delta", index=index, delta=piece)
        yield self._event("content_block_stop", index=index)

    def _event(self, kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\n".encode() + _data({"type": kind, **fields})


class GeminiDialect(Dialect):
    """Google's generateContent stream."""

    keepalive = b"\r\n"

    def content(self, reply: Reply) -> Iterator[bytes]:
        for piece in _cut(reply.thinking):
            yield self._chunk({"text": piece, "thought": True})
        for piece in _cut(reply.text):
            yield self._chunk({"text": piece})
        for call in reply.calls:
            part = {"functionCall": {"name": call.name, "args": json.loads(call.arguments)}}
            yield self._chunk(part | {"thoughtSignature": SIGNATURE})

    def ending(self, reply: Reply) -> Iterator[bytes]:
        usage = {
            "promptTokenCount": reply.usage.prompt,
            "candidatesTokenCount": reply.usage.output,
            "cachedContentTokenCount": reply.usage.cache_read,
        }
        candidate = {
            "content": {"role": "model", "parts": []},
            "finishReason": "MAX_TOKENS" if reply.cut_short else "STOP",
        }
        yield _data({"candidates": [candidate], "usageMetadata": usage})

    def error(self, reply: Reply) -> dict[str, Any]:
        return {"error": {"code": reply.status, "message": reply.text, "status": "ERROR"}}

    def _chunk(self, part: dict[str, Any]) -> bytes:
        return _data({"candidates": [{"content": {"role": "model", "parts": [part]}}]})
