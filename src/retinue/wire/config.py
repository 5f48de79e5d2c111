"""The configuration: reading it, and changing it without overwriting somebody else's change."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from retinue.wire.frames import Nothing, Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope

Path = Annotated[str, StringConstraints(min_length=1, max_length=300)]
Hash = Annotated[str, StringConstraints(min_length=64, max_length=64)]


class GetConfig(Params):
    """One key, or everything."""

    key: Path | None = None


class ConfigValue(Wire):
    """The value in effect, without secrets. `hash` is that of the file, to be given back with a change."""

    value: Any
    hash: str
    problems: list[str]


class ExplainKey(Params):
    """A key."""

    key: Path


class KeyFacts(Wire):
    """What there is to know about a key; `value` and `origin` only for who may read the configuration."""

    key: str
    value: Any
    origin: str
    type: str
    allowed: list[Any]
    default: Any
    reload: str
    pending: bool
    documentation: str
    keys: list[str]


class Change(Params):
    """A key and its new value as JSON; `unset` takes it out so that its default holds."""

    key: Path
    value: Any = None
    unset: bool = False


class PatchConfig(Params):
    """Changes to the file; refused where its hash is not `baseHash` any more."""

    base_hash: Hash
    changes: list[Change] = Field(min_length=1, max_length=50)


class Changed(Wire):
    """The hash of the file now, what took effect, and which keys wait for a restart."""

    hash: str
    changed: list[str]
    needs_restart: list[str]
    problems: list[str]


GET = Method("config.get", Scope.ADMIN, GetConfig, ConfigValue, "The configuration in effect.")
SCHEMA = Method("config.schema", Scope.READ, ExplainKey, KeyFacts, "What a key means and takes.")
PATCH = Method("config.patch", Scope.ADMIN, PatchConfig, Changed, "Change keys in the file and apply it.", True)
APPLY = Method("config.apply", Scope.ADMIN, Nothing, Changed, "Read the file again and apply it.", True)

METHODS = (GET, SCHEMA, PATCH, APPLY)
