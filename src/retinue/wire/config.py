"""The configuration: read it, and change it without overwriting a concurrent change."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from retinue.wire.frames import Nothing, Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope

Path = Annotated[str, Meta(min_length=1, max_length=300)]
Hash = Annotated[str, Meta(min_length=64, max_length=64)]


class GetConfig(Params, frozen=True):
    """One key; without one the whole configuration."""

    key: Path | None = None


class ConfigValue(Wire, frozen=True):
    """The value in effect, without secrets. `hash` is the hash of the file, which a change must carry."""

    value: Any
    hash: str
    problems: list[str]


class ExplainKey(Params, frozen=True):
    """A key."""

    key: Path


class KeyFacts(Wire, frozen=True):
    """The description of a key; `value` and `origin` are empty unless the caller may read the configuration."""

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


class Change(Params, frozen=True):
    """A key and its new value as JSON; `unset` removes the key so that its default applies."""

    key: Path
    value: Any | UnsetType = UNSET
    unset: bool = False


class PatchConfig(Params, frozen=True):
    """Changes to the file; refused if its hash is not `baseHash` any more."""

    base_hash: Hash
    changes: Annotated[list[Change], Meta(min_length=1, max_length=50)]


class Changed(Wire, frozen=True):
    """The hash of the file now, the keys that changed, and the keys that need a restart to take effect."""

    hash: str
    changed: list[str]
    needs_restart: list[str]
    problems: list[str]


GET = Method("config.get", Scope.ADMIN, GetConfig, ConfigValue, "Return the configuration in effect.")
SCHEMA = Method("config.schema", Scope.READ, ExplainKey, KeyFacts, "Describe a key and its values.")
PATCH = Method("config.patch", Scope.ADMIN, PatchConfig, Changed, "Change keys in the file and apply it.", True)
APPLY = Method("config.apply", Scope.ADMIN, Nothing, Changed, "Read the file again and apply it.", True)

METHODS = (GET, SCHEMA, PATCH, APPLY)
