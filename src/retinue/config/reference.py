"""The configuration as documents: a reference page and a JSON Schema, both made from the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import TypeAdapter

from retinue.config.documentation import documentation_of
from retinue.config.keypath import Segment
from retinue.config.keys import Key, every_key, fields_of, require_key
from retinue.config.shape import shape_of
from retinue.settings import Settings

_INTRO = """\
# Configuration reference

Every key of `retinue.json`. This page is made from the code by `make docs`; see
[Configuration](../configuration.md) for how to use it.

In a key, `[]` stands for an item of a list and `<name>` for a name of your choice. *Reload* says whether a running
gateway takes a change over (`live`) or has to be started again (`restart`). A key that is *not yet used* is accepted,
so that configurations written for OpenClaw validate, but changes nothing for now.
"""


def render_reference(config_model: type[Settings]) -> str:
    """The reference page in Markdown: one table per section of the configuration."""
    parts = [_INTRO]
    for alias, (model, attribute) in fields_of(shape_of(config_model)).items():
        keys = [key for key in every_key(config_model) if _belongs_to(key.path, alias) and key.shape.is_leaf]
        parts.append(f"## {alias}\n\n{documentation_of(model)[attribute]}\n")
        parts.append("\n".join(_table(keys)) + "\n")
    return "\n".join(parts)


def _belongs_to(path: str, alias: str) -> bool:
    return path == alias or path.startswith((f"{alias}.", f"{alias}["))


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


def json_schema(config_model: type[Settings], path: Sequence[Segment] = ()) -> dict[str, Any]:
    """The JSON Schema of the configuration, or of the part at a path, with the documentation of every key."""
    key = require_key(config_model, path)
    annotation: Any = config_model if not path else key.field.annotation if key.field else Any
    schema = TypeAdapter(annotation).json_schema(by_alias=True)
    documented = {model.__name__: model for model in _models_below(annotation)}
    for name, definition in (*schema.get("$defs", {}).items(), (schema.get("title"), schema)):
        model = documented.get(name)
        if model is not None:
            _describe(definition, model)
    if path and key.description:
        schema["description"] = key.description
    return schema


def _describe(definition: dict[str, Any], model: type[Settings]) -> None:
    described = documentation_of(model)
    for attribute, info in model.model_fields.items():
        definition.get("properties", {}).get(info.alias or attribute, {})["description"] = described.get(attribute, "")


def _models_below(annotation: Any) -> Iterator[type[Settings]]:
    if annotation is None:
        return
    shape = shape_of(annotation)
    for model in shape.models:
        yield model
        for info in model.model_fields.values():
            yield from _models_below(info.annotation)
    yield from _models_below(shape.items)
    yield from _models_below(shape.values)
