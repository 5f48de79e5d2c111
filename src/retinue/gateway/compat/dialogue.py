"""A conversation as a program sends it, whichever interface it speaks, as messages of our own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    UserMessage,
)
from retinue.core.model import ToolSpec
from retinue.core.trust import Trust
from retinue.gateway.compat.errors import BadField
from retinue.security.untrusted_text import TextSource, wrap_untrusted

MOST_IMAGES = 20
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]{1,40});base64,([A-Za-z0-9+/]+={0,2})", re.ASCII)
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

Hide = Callable[[str], str]
"""Takes the secrets that this process knows out of a text."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a request asks for now, and what was said before it."""

    history: tuple[Message, ...]
    text: str
    images: tuple[Image, ...]
    results: tuple[ToolResult, ...]


@dataclass
class Dialogue:
    """Collects what a request holds, in its order."""

    param: str
    """The field of the request that it is read from."""
    hide: Hide = str
    messages: list[Message] = field(default_factory=list)
    _instructions: list[str] = field(default_factory=list)

    @property
    def instructions(self) -> str:
        return "\n\n".join(self._instructions)

    def instruct(self, text: str) -> None:
        """Take a message of the role `system` or `developer`."""
        if text.strip():
            self._instructions.append(self.hide(text))

    def hear(self, content: Sequence[Text | Image]) -> None:
        """Take a message of the person's."""
        hidden = tuple(Text(self.hide(part.text)) if isinstance(part, Text) else part for part in content)
        if hidden:
            self.messages.append(UserMessage(hidden))

    def answer(self, text: str, calls: Sequence[ToolCall] = ()) -> None:
        """Take an answer that was given; neighbours are one answer."""
        content = (*((Text(self.hide(text)),) if text else ()), *calls)
        last = self.messages[-1] if self.messages else None
        if isinstance(last, AssistantMessage):
            content = (*last.content, *content)
            self.messages.pop()
        stop = StopReason.TOOL_CALLS if any(isinstance(part, ToolCall) for part in content) else StopReason.END
        if content:
            self.messages.append(AssistantMessage(content, stop=stop))

    def take_result(self, call_id: str, text: str) -> None:
        """Take what a tool of the program's gave; nobody knows where that came from."""
        names = (call.name for message in reversed(self.messages) for call in _calls(message) if call.id == call_id)
        digest = hashlib.sha256(f"{call_id}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        # The same result gets the same marks in every request, or no provider could cache the history.
        wrapped = wrap_untrusted(self.hide(text), TextSource.API, new_id=lambda: digest, warn=False)
        self.messages.append(ToolResult(call_id, next(names, ""), (Text(wrapped),), trust=Trust.UNTRUSTED))

    def split(self, trust: Trust) -> Step:
        """What is new since the last answer, and what came before; raises `BadField` where nothing is new."""
        spoken = [replace(m, trust=trust) if isinstance(m, UserMessage) else m for m in self.messages]
        answers = [at for at, message in enumerate(spoken) if isinstance(message, AssistantMessage)]
        at = answers[-1] + 1 if answers else 0
        new = spoken[at:]
        heard = [message for message in new if isinstance(message, UserMessage)]
        step = Step(
            history=tuple(spoken[:at]),
            text="\n\n".join(filter(None, (message.text for message in heard))),
            images=tuple(part for message in heard for part in message.content if isinstance(part, Image)),
            results=tuple(message for message in new if isinstance(message, ToolResult)),
        )
        if not (step.text.strip() or step.images or step.results):
            raise BadField(self.param, "There is nothing to answer: the last message must be a user's or a tool's.")
        if len(step.images) > MOST_IMAGES:
            raise BadField(self.param, f"A message has at most {MOST_IMAGES} pictures.")
        return step


def read_image(url: str, param: str) -> Image:
    """The picture in a data URL; the gateway fetches nothing for its callers."""
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise BadField(param, "A picture must be a data URL: `data:image/png;base64,…`. Addresses are not fetched.")
    return Image(found[1], found[2])


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call; those that are no JSON object are kept as the text they are."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {INVALID_ARGUMENTS: text}


def write_arguments(call: ToolCall) -> str:
    """The arguments of a call as the text that programs expect, which may be no JSON where the model wrote none."""
    if INVALID_ARGUMENTS in call.arguments:
        return str(call.arguments[INVALID_ARGUMENTS])
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def make_tool(name: str, description: str | None, parameters: dict[str, Any] | None, param: str) -> ToolSpec:
    """A tool of the program's as the model sees it."""
    if not _TOOL_NAME.fullmatch(name):
        raise BadField(param, "A tool's name has letters, digits, `_` and `-`, at most 64.")
    return ToolSpec(name, description or "", parameters or {"type": "object", "properties": {}})


def check_tools(tools: Sequence[ToolSpec], taken: Callable[[str], bool], param: str = "tools") -> tuple[ToolSpec, ...]:
    """The tools, where no two of them and none of the agent's own share a name."""
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise BadField(param, f"Two tools are called `{name}`.")
        if taken(name):
            raise BadField(param, f"The agent has a tool `{name}` of its own. Give yours another name.")
    return tuple(tools)


def _calls(message: Message) -> tuple[ToolCall, ...]:
    return message.calls if isinstance(message, AssistantMessage) else ()
