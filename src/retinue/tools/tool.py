"""The tool interface: name, schema and function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct, field

from retinue.core.approval import Ask, deny_unattended
from retinue.core.errors import RetinueError, ToolFailed
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import Image, Message, Text
from retinue.core.model import ToolSpec
from retinue.core.people import Person
from retinue.core.sinks import Sink
from retinue.storage.files import Root
from retinue.storage.provenance import AgentWrites
from retinue.structs.declare import Declared, UnknownKeys, declare
from retinue.structs.decode import DecodeError, decode
from retinue.structs.json_schema import json_schema
from retinue.tools.elevated import Elevation


class Arguments(Declared, rename="camel"):
    """The base class of tool arguments: camelCase names for the model; unknown names are refused."""

    unknown_keys: ClassVar[UnknownKeys] = "forbid"
    accepts_attribute_names: ClassVar[bool] = True


argument = declare
"""Declare an argument with limits, or with a description for the model."""

A = TypeVar("A", bound=Arguments)


class ToolOutput(Struct, frozen=True):
    """The result of a tool. Its label is foreign if it contains text from outside, private if it repeats notes."""

    content: tuple[Text | Image, ...]
    label: Label = Label.AGENT
    is_error: bool = False

    @classmethod
    def of(cls, text: str, *, label: Label = Label.AGENT, is_error: bool = False) -> ToolOutput:
        return cls((Text(text),), label, is_error)


async def _no_report(text: str) -> None:
    """Ignore progress."""


class ToolContext(Struct, frozen=True):
    """What a tool call can use: the workspace, the session, the sender, and a function that asks for approval.

    `readable` are additional folders that may be read, such as those of skills and of the documentation. `outside`
    is the root of the file system if file tools may leave the workspace. `elevated` is the level of elevated mode;
    unless it is `off`, commands run outside the sandbox. In an `unattended` turn, a schedule or hook wrote the message.
    `label` is the label of the request: the mixture of all that it contains; `writes` records what a tainted request
    writes to files, and it needs approval at every sink that is not `unasked`. `whole` is the workspace if `root` is
    only a folder of it. `person` is the person for whom the call is, if that is not the owner; then `root` may hold at
    most `max_bytes`. `request` are the messages that the model had read when it made the call, and its answer with
    the call.
    """

    agent: AgentId
    session: SessionKey
    run: RunId
    call_id: str
    root: Root
    readable: tuple[Root, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    label: Label = Label.AGENT
    unasked: frozenset[Sink] = frozenset()
    owner: bool = True
    unattended: bool = False
    elevated: Elevation = Elevation.OFF
    outside: Root | None = None
    writes: AgentWrites | None = None
    whole: Root | None = None
    session_id: str = ""
    person: Person | None = None
    max_bytes: int | None = None
    request: Sequence[Message] = ()
    ask: Ask = deny_unattended
    report: Callable[[str], Awaitable[None]] = _no_report

    @property
    def workspace(self) -> Root:
        """The whole workspace, even if the session is restricted to a folder of it."""
        return self.whole or self.root

    @property
    def tainted(self) -> bool:
        """Whether the request contains text of other people or untrusted text."""
        return self.label.is_foreign

    def asks_at(self, sink: Sink) -> bool:
        """Return whether an action needs approval because untrusted text may have suggested it."""
        return self.tainted and sink not in self.unasked


@contextmanager
def reported_to_model(*kinds: type[RetinueError]) -> Iterator[None]:
    """Turn errors of these kinds into `ToolFailed`, whose message the model gets."""
    try:
        yield
    except ToolFailed:
        raise
    except kinds as error:
        raise ToolFailed(str(error)) from error


class Tool(Struct, Generic[A], frozen=True, dict=True):
    """A tool that the model may call. `run` raises `ToolFailed` with a message for the model.

    If the policy requires approval of a call, a tool with `asks` requests it itself, because it can show more than the
    arguments; for other tools the loop does. `plugin` is the plugin that made the tool; empty for a built-in one. Its
    calls need approval after untrusted text unless it is declared `read_only`: a call changes nothing, and sends
    nothing that the model chose to anybody but the service that it reads.
    """

    name: str
    summary: str
    description: str
    arguments: type[A]
    run: Callable[[A, ToolContext], Awaitable[ToolOutput]]
    deferred: bool = False
    parallel: bool = True
    owner_only: bool = False
    asks: bool = False
    read_only: bool = False
    plugin: str = ""

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, _schema_of(self.arguments))

    def parse(self, arguments: Mapping[str, Any]) -> A:
        """Decode the arguments; raise `ToolFailed` with every problem."""
        try:
            return decode(self.arguments, arguments)
        except DecodeError as error:
            raise ToolFailed(f"`{self.name}` was called with wrong arguments: {error}.") from error


@cache
def _schema_of(arguments: type[Arguments]) -> Any:
    return compact_schema(json_schema(arguments))


def compact_schema(schema: Any) -> Any:
    """Remove from a JSON schema what models do not need: titles, references, null alternatives, empty defaults.

    The arguments of a call are validated against the full declaration.
    """
    definitions = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    return _compact(schema, definitions)


def _compact(schema: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_compact(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **{k: v for k, v in schema.items() if k != "$ref"}}
    options = schema.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        rest = [option for option in options if option != {"type": "null"}]
        others = {k: v for k, v in schema.items() if k != "anyOf"}
        schema = {**rest[0], **others} if len(rest) == 1 else {**others, "anyOf": rest}
    return {k: _compact(v, definitions) for k, v in schema.items() if not _is_noise(k, v)}


def _is_noise(keyword: str, value: Any) -> bool:
    match keyword:
        case "title":
            return isinstance(value, str)
        case "default":
            return not value
        case "additionalProperties":
            return isinstance(value, bool)
        case "minLength":
            return isinstance(value, int)
        case _:
            return keyword == "$defs"
