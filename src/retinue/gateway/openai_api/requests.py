"""Requests of the OpenAI API: the supported fields, and the conversation in them as messages of `core`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from retinue.core.envelope import MAX_MESSAGE_CHARS, AnswerFormat
from retinue.core.errors import UsageError
from retinue.core.labels import Label
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
from retinue.gateway.errors import BadField
from retinue.runtime.turns.answer_format import check_schema
from retinue.security.untrusted_text import TextSource, wrap_untrusted

MAX_IMAGES = 20
MAX_MESSAGES = 5_000
MAX_TOOLS = 128
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]{1,40});base64,([A-Za-z0-9+/]+={0,2})", re.ASCII)
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

Name = Annotated[str, Meta(min_length=1, max_length=200)]
User = Annotated[str, Meta(min_length=1, max_length=500)]
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
        self.messages.append(ToolResult(call_id, next(names, ""), (Text(wrapped),), label=Label.UNTRUSTED))

    def split(self, label: Label) -> ConversationStep:
        """Separate what is new since the last answer from the history; raises `BadField` if nothing is new."""
        spoken = [replace(m, label=label) if isinstance(m, UserMessage) else m for m in self.messages]
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


class OpenAIShape(Struct, frozen=True):
    """A part of a request; fields that are not declared are ignored."""


class ImageUrl(OpenAIShape, frozen=True):
    """The data URL of a picture."""

    url: str


class ContentPart(OpenAIShape, frozen=True):
    """A part of a message: text or a picture. Chat completions and responses use different names for them."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None

    def read(self, param: str) -> Text | Image:
        match self.type:
            case "text" | "input_text" | "output_text":
                return Text(self.text or "")
            case "refusal":
                return Text(self.refusal or "")
            case "image_url" | "input_image" if self.image_url is not None:
                url = self.image_url if isinstance(self.image_url, str) else self.image_url.url
                return read_image(url, param)
        raise BadField(param, f"Parts of the type '{self.type[:60]}' are not supported. Send text and pictures.")


Content = str | list[ContentPart]


def read_content(content: Content | None, param: str) -> tuple[Text | Image, ...]:
    """The parts of a message without empty ones."""
    if content is None or isinstance(content, str):
        return (Text(content),) if content else ()
    parts = [part.read(param) for part in content]
    return tuple(part for part in parts if not isinstance(part, Text) or part.text)


def read_text(content: Content | None, param: str) -> str:
    """The text of a message that may have only text."""
    parts = read_content(content, param)
    if any(isinstance(part, Image) for part in parts):
        raise BadField(param, "Only messages of the role `user` may have pictures.")
    return "\n".join(part.text for part in parts if isinstance(part, Text))


class NamedSchema(OpenAIShape, frozen=True):
    """A JSON Schema in a request for a chat completion."""

    schema: dict[str, Any] | None = None


class ChosenFormat(OpenAIShape, frozen=True):
    """The format of an answer. Chat completions have the schema in `json_schema`, responses in `schema`."""

    type: str = "text"
    json_schema: NamedSchema | None = None
    schema: dict[str, Any] | None = None


class ToolChoice(OpenAIShape, frozen=True):
    """The tool that must be called."""

    type: str


Choice = Literal["none", "auto", "required"] | ToolChoice


def read_format(wanted: ChosenFormat | None, param: str) -> AnswerFormat | None:
    """The format of the answer; None for text. Raises `BadField` for an unknown format or an unusable schema."""
    match wanted:
        case None | ChosenFormat(type="text"):
            return None
        case ChosenFormat(type="json_object"):
            return AnswerFormat()
        case ChosenFormat(type="json_schema"):
            schema = wanted.json_schema.schema if wanted.json_schema else wanted.schema
            if schema is None:
                raise BadField(param, "The format `json_schema` needs a `schema`.")
            try:
                check_schema(schema)
            except UsageError as error:
                raise BadField(param, str(error)) from None
            return AnswerFormat(schema)
    raise BadField(param, "The formats are `text`, `json_object` and `json_schema`.")


def offers_tools(choice: Choice | None) -> bool:
    """Whether the model may call the request's tools; raises `BadField` if a call is to be forced."""
    match choice:
        case None | "auto":
            return True
        case "none":
            return False
    raise BadField("tool_choice", "An agent decides itself which tools it calls: only `auto` and `none` are supported.")


class ClientFunction(OpenAIShape, frozen=True):
    """A function that the client runs itself."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class CalledFunction(OpenAIShape, frozen=True):
    """A call of a function of the client."""

    name: str
    arguments: str = ""


class ChatCall(OpenAIShape, frozen=True, kw_only=True):
    """A tool call in an answer."""

    id: Name
    type: str = "function"
    function: CalledFunction


class ChatMessage(OpenAIShape, frozen=True):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    tool_calls: list[ChatCall] | None = None
    tool_call_id: str | None = None


class ChatTool(OpenAIShape, frozen=True):
    """A tool of the client."""

    type: str = "function"
    function: ClientFunction | None = None


class StreamOptions(OpenAIShape, frozen=True):
    """What a stream contains besides the answer."""

    include_usage: bool = False


class ChatRequest(OpenAIShape, frozen=True):
    """A request for a chat completion. Sampling parameters such as `temperature` have no effect."""

    model: Name
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: User | None = None
    tools: Annotated[list[ChatTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Choice | None = None
    response_format: ChosenFormat | None = None
    n: Annotated[int, Meta(ge=1)] | None = None
    functions: list[Any] | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None


class CompletionRequest(OpenAIShape, frozen=True):
    """A request for a completion of the older API. Sampling parameters such as `temperature` have no effect."""

    model: Name
    prompt: Annotated[str, Meta(extra_json_schema={"maxLength": MAX_MESSAGE_CHARS})] | list[str]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: User | None = None
    n: Annotated[int, Meta(ge=1)] | None = None
    best_of: Annotated[int, Meta(ge=1)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: int | None = None


class ResponseItem(OpenAIShape, frozen=True):
    """An item of a response's input: a message, a call, or the output of a call."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content | None = None


class ResponseTool(OpenAIShape, frozen=True):
    """A tool of the client."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ResponseText(OpenAIShape, frozen=True):
    """The format of a response's text."""

    format: ChosenFormat | None = None


class ResponseRequest(OpenAIShape, frozen=True):
    """A request for a response."""

    model: Name
    input: Annotated[str, Meta(extra_json_schema={"maxLength": MAX_MESSAGE_CHARS})] | list[ResponseItem]
    instructions: str | None = None
    previous_response_id: Name | None = None
    stream: bool | None = False
    user: User | None = None
    tools: Annotated[list[ResponseTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Choice | None = None
    text: ResponseText | None = None
    background: bool | None = None
    metadata: dict[str, str] | None = None


class EmbeddingRequest(OpenAIShape, frozen=True):
    """A request for embeddings."""

    model: Name
    input: Annotated[str, Meta(max_length=2_048_000)] | list[str]
    """Texts; the API also defines lists of token numbers, which mean something to one model only."""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: User | None = None
