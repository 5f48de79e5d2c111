"""The gateway itself: its state, its audit log and its configuration."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from retinue.wire.frames import Method, Nothing, Params, Time, Wire
from retinue.wire.protocol import Scope


class Health(Wire, frozen=True):
    """Whether the gateway serves requests."""

    ok: bool
    draining: bool


class Status(Wire, frozen=True):
    """The state of the gateway in numbers."""

    version: str
    pid: int
    epoch: str
    started_at: Time
    uptime_seconds: float
    home: str
    address: str
    connections: int
    turns_running: int
    turns_waiting: int
    sessions_active: int
    memory_mb: float
    config_hash: str
    config_problems: list[str]
    draining: bool
    reports: tuple[str, ...] = ()
    """What happened to damaged databases that were set aside and still exist."""
    read_only: str = ""
    """Why nothing can be stored, and what to do; empty if changes are possible."""


class ReadAudit(Params, frozen=True):
    """How many lines to return, and of which kind."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    kind: Annotated[str, Meta(max_length=100)] | None = None


class AuditLines(Wire, frozen=True):
    """Oldest first. `damage` lists lines that were changed or removed."""

    entries: list[dict[str, Any]]
    damage: list[str]


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


class FindKeys(Params, frozen=True):
    """Words that the name or the documentation of a key must contain."""

    query: Annotated[str, Meta(min_length=1, max_length=200)]
    limit: Annotated[int, Meta(ge=1, le=200)] = 30


class FoundKey(Wire, frozen=True):
    """A key; `[]` stands for an item of a list and `<name>` for a name of the owner's choice."""

    key: str
    documentation: str


class FoundKeys(Wire, frozen=True):
    """The keys, those with the words in their names first."""

    keys: list[FoundKey]


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


HEALTH = Method("health", Scope.READ, Nothing, Health, "Report whether the gateway serves requests.")
STATUS = Method("status", Scope.READ, Nothing, Status, "Report the state of the gateway.")
AUDIT_LOG = Method("audit.log", Scope.ADMIN, ReadAudit, AuditLines, "Read the audit log.")
CONFIG_GET = Method("config.get", Scope.ADMIN, GetConfig, ConfigValue, "Return the configuration in effect.")
CONFIG_SCHEMA = Method("config.schema", Scope.READ, ExplainKey, KeyFacts, "Describe a key and its values.")
CONFIG_FIND = Method("config.find", Scope.READ, FindKeys, FoundKeys, "Find keys by words.")
CONFIG_PATCH = Method("config.patch", Scope.ADMIN, PatchConfig, Changed, "Change keys in the file and apply it.", True)
CONFIG_APPLY = Method("config.apply", Scope.ADMIN, Nothing, Changed, "Read the file again and apply it.", True)

METHODS = (HEALTH, STATUS, AUDIT_LOG, CONFIG_GET, CONFIG_SCHEMA, CONFIG_FIND, CONFIG_PATCH, CONFIG_APPLY)
