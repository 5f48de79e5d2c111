"""Explains one key: its value, the origin of the value, and the documentation of the key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from retinue.config.keypath import Segment, format_key_path, locate, look_up, parse_path
from retinue.config.keys import keys_of, require_key
from retinue.config.load import LoadedConfig, ValueOrigin
from retinue.config.schema import Config
from retinue.config.secret_keys import redact
from retinue.settings import Reload
from retinue.structs.plain import to_plain

_WORKSPACE = ("agents", "defaults", "workspace")


class Explanation(msgspec.Struct, frozen=True):
    """The explanation of a key, without secrets."""

    key: str
    value: Any
    origin: str
    type: str
    allowed: tuple[Any, ...]
    default: Any
    reload: Reload
    pending: bool
    documentation: str
    keys: tuple[str, ...] = ()
    """The keys of a section."""

    def as_dict(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


def explain(loaded: LoadedConfig, name: str) -> Explanation:
    """Explain a key by its dotted name; for an unknown key raise `UsageError` with the most similar one."""
    path = parse_path(name)
    key = require_key(Config, path)
    value, origin = value_and_origin(loaded, path)
    return Explanation(
        key=format_key_path(path),
        value=redact(value, path),
        origin=str(origin),
        type=key.shape.words,
        allowed=key.shape.allowed,
        default=redact(key.default, path),
        reload=key.reload,
        pending=key.pending and key.shape.is_leaf,
        documentation=key.description,
        keys=tuple(keys_of(key.shape)),
    )


def effective_value(loaded: LoadedConfig, name: str | None = None) -> Any:
    """Return the effective value of one key or of the whole configuration, without secrets."""
    if name is None:
        return redact(plain_config(loaded.config))
    path = parse_path(name)
    require_key(Config, path)
    return redact(value_and_origin(loaded, path)[0], path)


def value_and_origin(loaded: LoadedConfig, path: Sequence[Segment]) -> tuple[Any, ValueOrigin]:
    """Return the effective value and its origin."""
    data = plain_config(loaded.config)
    steps = locate(path, data)
    origin = loaded.origin(steps)
    value = look_up(steps, data)[1]
    if steps == _WORKSPACE and value is None:
        value = str(loaded.home.workspace)
        if loaded.home.profile:
            origin = ValueOrigin("profile", profile=loaded.home.profile)
    return value, origin


def plain_config(config: Config) -> Any:
    """Return the configuration as plain data, including defaults and secrets."""
    return to_plain(config, omit_none=True)
