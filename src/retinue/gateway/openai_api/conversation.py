"""The conversation in a request, of chat completions or responses, as messages of `core`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.messages import (
    INVALID_ARGUMENTS,
    AssistantMessage,
    Image,
    Message,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Trust,
    UserMessage,
)
from retinue.core.model import ToolSpec
from retinue.gateway.errors import BadField
from retinue.security.untrusted_text import TextSource, wrap_untrusted

MAX_IMAGES = 20
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]{1,40});base64,([A-Za-z0-9+/]+={0,2})", re.ASCII)
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

Hide = Callable[[str], str]
"""Removes the secrets that this process knows from a text."""


class ConversationStep(Struct, frozen=True):
    """What is new in a request, and the history before it."""

    history: tuple[Message, ...]
    text: str
    images: tuple[Image, ...]
    results: tuple[ToolResult, ...]


class ClientConversation:
    """Collects the messages of a request, in their order. `param` is the field of the request that has them."""

    def __init__(self, param: str, hide: Hide = str) -> None:
        self.param = param
        self.messages: list[Message] = []
        self._hide = hide
        self._instructions: list[str] = []

    @property
    def instructions(self) -> str:
        return "\n\n".join(self._instructions)

    def add_instructions(self, text: str) -> None:
        """Add a message of the role `system` or `developer`."""
        if text.strip():
            self._instructions.append(self._hide(text))

    def add_user_message(self, content: Sequence[Text | Image]) -> None:
        """Add a message of the role `user`."""
        hidden = tuple(Text(self._hide(part.text)) if isinstance(part, Text) else part for part in content)
        if hidden:
            self.messages.append(UserMessage(hidden))

    def add_answer(self, text: str, calls: Sequence[ToolCall] = ()) -> None:
        """Add a message of the role `assistant`; consecutive ones become one message."""
        content = (*((Text(self._hide(text)),) if text else ()), *calls)
        last = self.messages[-1] if self.messages else None
        if isinstance(last, AssistantMessage):
            content = (*last.content, *content)
            self.messages.pop()
        stop = StopReason.TOOL_CALLS if any(isinstance(part, ToolCall) for part in content) else StopReason.END
        if content:
            self.messages.append(AssistantMessage(content, stop=stop))

    def add_tool_result(self, call_id: str, text: str) -> None:
        """Add the result of a tool of the program; it is untrusted, because its source is unknown."""
        answers = [message for message in reversed(self.messages) if isinstance(message, AssistantMessage)]
        names = (call.name for answer in answers for call in answer.calls if call.id == call_id)
        digest = hashlib.sha256(f"{call_id}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        # The same result gets the same marks in every request, so that providers can cache the history.
        wrapped = wrap_untrusted(self._hide(text), TextSource.API, new_id=lambda: digest, warn=False)
        self.messages.append(ToolResult(call_id, next(names, ""), (Text(wrapped),), trust=Trust.UNTRUSTED))

    def split(self, trust: Trust) -> ConversationStep:
        """Separate what is new since the last answer from the history; raises `BadField` if nothing is new."""
        spoken = [replace(m, trust=trust) if isinstance(m, UserMessage) else m for m in self.messages]
        answers = [at for at, message in enumerate(spoken) if isinstance(message, AssistantMessage)]
        at = answers[-1] + 1 if answers else 0
        new = spoken[at:]
        heard = [message for message in new if isinstance(message, UserMessage)]
        step = ConversationStep(
            history=tuple(spoken[:at]),
            text="\n\n".join(filter(None, (message.text for message in heard))),
            images=tuple(part for message in heard for part in message.content if isinstance(part, Image)),
            results=tuple(message for message in new if isinstance(message, ToolResult)),
        )
        if not (step.text.strip() or step.images or step.results):
            raise BadField(
                self.param, "There is nothing to answer: the last message must have the role `user` or `tool`."
            )
        if len(step.images) > MAX_IMAGES:
            raise BadField(self.param, f"A message has at most {MAX_IMAGES} pictures.")
        return step


def read_image(url: str, param: str) -> Image:
    """The picture in a data URL; the gateway does not fetch URLs."""
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise BadField(param, "A picture must be a data URL: `data:image/png;base64,…`. Other URLs are not fetched.")
    return Image(found[1], found[2])


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call; if they are not a JSON object, the text is kept."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {INVALID_ARGUMENTS: text}


def write_arguments(call: ToolCall) -> str:
    """The arguments of a call as text; if the model did not write JSON, the text is not JSON."""
    if INVALID_ARGUMENTS in call.arguments:
        return str(call.arguments[INVALID_ARGUMENTS])
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def make_tool(name: str, description: str | None, parameters: dict[str, Any] | None, param: str) -> ToolSpec:
    """A tool of the program as the model sees it."""
    if not _TOOL_NAME.fullmatch(name):
        raise BadField(param, "The name of a tool has at most 64 letters, digits, `_` and `-`.")
    return ToolSpec(name, description or "", parameters or {"type": "object", "properties": {}})


def check_tools(tools: Sequence[ToolSpec], taken: Callable[[str], bool], param: str = "tools") -> tuple[ToolSpec, ...]:
    """The tools; raises `BadField` if two of them, or one of them and a tool of the agent, have the same name."""
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise BadField(param, f"Two tools have the name `{name}`.")
        if taken(name):
            raise BadField(param, f"The agent itself has a tool `{name}`. Use another name.")
    return tuple(tools)
