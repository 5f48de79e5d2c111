"""Requests of the OpenAI API, with the fields that are supported."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from retinue.core.messages import Image, Text
from retinue.gateway.errors import BadField
from retinue.gateway.openai_api.conversation import read_image

MAX_MESSAGES = 5_000
MAX_TOOLS = 128

Name = Annotated[str, Meta(min_length=1, max_length=200)]
User = Annotated[str, Meta(min_length=1, max_length=500)]


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


class ChosenFormat(OpenAIShape, frozen=True):
    """The format of an answer."""

    type: str = "text"


class ToolChoice(OpenAIShape, frozen=True):
    """The tool that must be called."""

    type: str


Choice = Literal["none", "auto", "required"] | ToolChoice


def refuse_format(wanted: ChosenFormat | None, param: str) -> None:
    """Raise `BadField` for a format other than text, which an agent cannot guarantee."""
    if wanted is not None and wanted.type != "text":
        raise BadField(param, "Only the format `text` is supported.")


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
    input: Annotated[str, Meta(max_length=8_000_000)] | list[ResponseItem]
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
