"""Generates the reference page and the JSON Schema of the configuration from the declarations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from retinue.config.documentation import documentation_of
from retinue.config.key_types import shape_of
from retinue.config.keypath import Segment
from retinue.config.keys import Key, every_key, key_of, keys_of, require_key
from retinue.settings import Settings
from retinue.structs import json_schema as structs
from retinue.structs.declare import Declared, Field

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
        keys = [key for key in every_key(config) if _belongs_to(key.path, name) and key.shape.is_leaf]
        parts.append(f"## {name}\n\n{documentation_of(section)[field.attribute]}\n")
        parts.append("\n".join(_table(keys)) + "\n")
    return "\n".join(parts)


def _belongs_to(path: str, section: str) -> bool:
    return path == section or path.startswith((f"{section}.", f"{section}["))


def _table(keys: Sequence[Key]) -> Iterator[str]:
    yield "| Key | Takes | Default | Reload | Meaning |"
    yield "|---|---|---|---|---|"
    for key in keys:
        default = "required" if key.is_required else _code(key.default)
        meaning = f"{key.description}{' *Not yet used.*' if key.pending else ''}"
        cells = (f"`{key.path}`", key.shape.words, default, key.reload, meaning)
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _code(value: Any) -> str:
    return "" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


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
    return {"description": documentation, "reload": info.reload, "pending": info.pending}
