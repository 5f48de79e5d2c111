"""What requests of OpenAI's interfaces look like, as far as they are understood here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from retinue.core.messages import Image, Text
from retinue.gateway.compat.dialogue import read_image
from retinue.gateway.compat.errors import BadField

MOST_MESSAGES = 5_000
MOST_TOOLS = 128

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
User = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class Shape(BaseModel):
    """A part of a request; what it has besides is not looked at."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ImageUrl(Shape):
    """Where a picture is: a data URL."""

    url: str


class Part(Shape):
    """A part of a message: words or a picture. The two interfaces name the same things differently."""

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
        raise BadField(param, f"Parts of the type '{self.type[:60]}' are not supported. Send words and pictures.")


Content = str | list[Part]


def read_content(content: Content | None, param: str) -> tuple[Text | Image, ...]:
    """The parts of a message; empty ones are left out."""
    if content is None or isinstance(content, str):
        return (Text(content),) if content else ()
    parts = [part.read(param) for part in content]
    return tuple(part for part in parts if not isinstance(part, Text) or part.text)


def read_words(content: Content | None, param: str) -> str:
    """The words of a message that has nothing else."""
    parts = read_content(content, param)
    if any(isinstance(part, Image) for part in parts):
        raise BadField(param, "Only messages of the role `user` have pictures.")
    return "\n".join(part.text for part in parts if isinstance(part, Text))


class ChosenFormat(Shape):
    """How an answer is to be written."""

    type: str = "text"


class ToolChoice(Shape):
    """Which tool must be called."""

    type: str


Choice = Literal["none", "auto", "required"] | ToolChoice


def refuse_format(wanted: ChosenFormat | None, param: str) -> None:
    """Refuse what an agent cannot promise."""
    if wanted is not None and wanted.type != "text":
        raise BadField(param, "An agent answers in its own words: only the format `text` is supported.")


def offers_tools(choice: Choice | None) -> bool:
    """Whether a request's tools are to be offered; refuses to force a call."""
    match choice:
        case None | "auto":
            return True
        case "none":
            return False
    raise BadField("tool_choice", "An agent decides itself what it calls: only `auto` and `none` are supported.")


class Function(Shape):
    """A function that the program runs itself."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class CalledFunction(Shape):
    """A call of such a function."""

    name: str
    arguments: str = ""


class ChatCall(Shape):
    """A call in an answer."""

    id: Name
    type: str = "function"
    function: CalledFunction


class ChatMessage(Shape):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    tool_calls: list[ChatCall] | None = None
    tool_call_id: str | None = None


class ChatTool(Shape):
    """A tool of the program's."""

    type: str = "function"
    function: Function | None = None


class StreamOptions(Shape):
    """What a stream tells besides the answer."""

    include_usage: bool = False


class ChatRequest(Shape):
    """A request for a chat completion. What an agent decides itself (temperature and the like) has no effect."""

    model: Name
    messages: list[ChatMessage] = Field(min_length=1, max_length=MOST_MESSAGES)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: User | None = None
    tools: list[ChatTool] | None = Field(default=None, max_length=MOST_TOOLS)
    tool_choice: Choice | None = None
    response_format: ChosenFormat | None = None
    n: int | None = Field(default=None, ge=1)
    functions: list[Any] | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None


class ResponseItem(Shape):
    """An item of a response's input: a message, a call, or what a call gave."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content | None = None


class ResponseTool(Shape):
    """A tool of the program's."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ResponseText(Shape):
    """How the text of a response is to be written."""

    format: ChosenFormat | None = None


class ResponseRequest(Shape):
    """A request for a response."""

    model: Name
    input: str | list[ResponseItem] = Field(max_length=8_000_000)
    instructions: str | None = None
    previous_response_id: Name | None = None
    stream: bool | None = False
    user: User | None = None
    tools: list[ResponseTool] | None = Field(default=None, max_length=MOST_TOOLS)
    tool_choice: Choice | None = None
    text: ResponseText | None = None
    background: bool | None = None
    metadata: dict[str, str] | None = None


def _refuse_tokens(value: object) -> object:
    """Programs may send the numbers of tokens instead of words, which mean something to one model alone."""
    if isinstance(value, list) and any(isinstance(each, int | list) for each in value):
        raise ValueError("send texts, and not numbers of tokens")
    return value


class EmbeddingRequest(Shape):
    """A request for embeddings."""

    model: Name
    input: Annotated[str | list[str], BeforeValidator(_refuse_tokens)] = Field(max_length=2_048_000)
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    user: User | None = None
