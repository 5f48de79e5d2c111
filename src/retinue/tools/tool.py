"""A tool: a name, a schema and something to run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache, cached_property
from typing import Any, Generic, TypeVar

from msgspec import Struct, field
from pydantic import BaseModel, ConfigDict, ValidationError

from retinue.core.approval import Ask, nobody_to_ask
from retinue.core.errors import ToolFailed
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import Image, Text
from retinue.core.model import ToolSpec
from retinue.core.trust import Trust
from retinue.storage.files import Root
from retinue.storage.provenance import AgentWrites
from retinue.tools.elevated import Elevation


class Arguments(BaseModel):
    """The base of every tool's arguments: camelCase names as the model writes them, unknown names refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


A = TypeVar("A", bound=Arguments)


class ToolOutput(Struct, frozen=True):
    """What a tool gives back. `trust` is UNTRUSTED for anything that came from outside."""

    content: tuple[Text | Image, ...]
    trust: Trust = Trust.AGENT
    is_error: bool = False

    @classmethod
    def of(cls, text: str, *, trust: Trust = Trust.AGENT, is_error: bool = False) -> ToolOutput:
        return cls((Text(text),), trust, is_error)


async def _no_report(text: str) -> None:
    """Progress that nobody watches."""


class ToolContext(Struct, frozen=True):
    """What a running tool may know and use: the workspace, who asked, and how to ask a person.

    `readable` are further folders that may be read, such as those of skills and of the documentation. `outside` is the
    whole machine, where file tools may leave the workspace. `elevated` is what was lifted for this call: where it is
    not `off`, commands run outside the sandbox. A request is `tainted` where any part of it came from outside; `writes`
    is where tools note what such a request puts into files. `whole` is the workspace where `root` is only a folder of
    it.
    """

    agent: AgentId
    session: SessionKey
    run: RunId
    call_id: str
    root: Root
    readable: tuple[Root, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    tainted: bool = False
    asks_when_tainted: bool = True
    owner: bool = True
    elevated: Elevation = Elevation.OFF
    outside: Root | None = None
    writes: AgentWrites | None = None
    whole: Root | None = None
    ask: Ask = nobody_to_ask
    report: Callable[[str], Awaitable[None]] = _no_report

    @property
    def workspace(self) -> Root:
        """All of the workspace, whichever folder of it the session works in."""
        return self.whole or self.root

    @property
    def is_wary(self) -> bool:
        """Whether what reaches beyond the workspace needs consent, because text from outside may have suggested it."""
        return self.tainted and self.asks_when_tainted


class Tool(Struct, Generic[A], frozen=True, dict=True):
    """A tool the model may call. `run` raises `ToolFailed` with a message that the model can act on.

    Where the policy says that a person must agree to a call, a tool that `asks` does it itself, because it has more to
    show than the arguments; for the others the loop asks.
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

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, _schema_of(self.arguments))

    def parse(self, arguments: Mapping[str, Any]) -> A:
        """The arguments as this tool's type, or `ToolFailed` saying what is wrong with each."""
        try:
            return self.arguments.model_validate(arguments)
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
            raise ToolFailed(f"`{self.name}` was called with wrong arguments: {problems}.") from error


@cache
def _schema_of(arguments: type[BaseModel]) -> Any:
    return compact_schema(arguments.model_json_schema(by_alias=True))


def compact_schema(schema: Any) -> Any:
    """A JSON schema without what no model needs: titles, references, null alternatives, empty defaults, closedness.

    What is left out is still checked when a call is parsed.
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
