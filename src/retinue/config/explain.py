"""Explains keys: one key with its value and origin, the reference page of all keys, and their JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from retinue.config.keypath import Segment, format_key_path, locate, look_up, parse_path
from retinue.config.keys import Key, documentation_of, every_key, key_of, keys_of, redact, require_key, shape_of
from retinue.config.load import LoadedConfig, ValueOrigin
from retinue.config.schema import Config
from retinue.settings import Reload, Settings
from retinue.structs import json_schema as structs
from retinue.structs.declare import Declared, Field, to_plain

_ESCAPED_BAR = r"\|"
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
    because: str = ""
    """Why a pending key has no effect yet."""

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
        pending=bool(key.pending) and key.shape.is_leaf,
        documentation=key.description,
        keys=tuple(keys_of(key.shape)),
        because=key.pending if key.shape.is_leaf else "",
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


_INTRO = """\
# Configuration reference

Every key of `retinue.json`. This page is made from the code by `make docs`; see
[Configuration](../configuration.md) for how to use it.

In a key, `[]` stands for an item of a list and `<name>` for a name of your choice. *Reload* says whether a running
gateway applies a change (`live`) or must be restarted (`restart`). A key that is *not yet used* is accepted,
so that configurations written for OpenClaw validate, but has no effect.
"""


def render_reference(config: type[Settings]) -> str:
    """Return the reference page in Markdown: one table for each section."""
    parts = [_INTRO]
    for name, (section, field) in keys_of(shape_of(config)).items():
        below = (f"{name}.", f"{name}[")
        leaves = (key for key in every_key(config) if key.shape.is_leaf)
        keys = [key for key in leaves if key.path == name or key.path.startswith(below)]
        parts.append(f"## {name}\n\n{documentation_of(section)[field.attribute]}\n")
        parts.append("\n".join(_table(keys)) + "\n")
    return "\n".join(parts)


def _table(keys: Sequence[Key]) -> Iterator[str]:
    yield "| Key | Takes | Default | Reload | Meaning |"
    yield "|---|---|---|---|---|"
    for key in keys:
        default = "" if key.default is None else f"`{json.dumps(key.default, ensure_ascii=False)}`"
        meaning = f"{key.description}{f' *Not yet used: {key.pending}.*' if key.pending else ''}"
        cells = (f"`{key.path}`", key.shape.words, "required" if key.is_required else default, key.reload, meaning)
        yield f"| {' | '.join(' '.join(cell.split()).replace('|', _ESCAPED_BAR) for cell in cells)} |"


def json_schema(config: type[Settings], path: Sequence[Segment] = ()) -> dict[str, Any]:
    """Return the JSON Schema of the configuration or of the part at a path, with the documentation of every key."""
    key = require_key(config, path)
    hint: Any = config if not path else key.field.type if key.field else Any
    schema = structs.json_schema(hint, _describe_key)
    if path and key.description:
        schema["description"] = key.description
    return schema


def _describe_key(section: type[Declared], field: Field) -> dict[str, Any]:
    assert issubclass(section, Settings)
    info = key_of(section, field, "").info
    documentation = documentation_of(section).get(field.attribute, "")
    return {"description": documentation, "reload": info.reload, "pending": bool(info.pending)}
