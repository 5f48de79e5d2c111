"""Every key of the configuration: where it stands, what it takes and what it is for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic.fields import FieldInfo

from retinue.config.documentation import documentation_of
from retinue.config.keypath import Segment, spell_path
from retinue.config.shape import Shape, shape_of
from retinue.core.errors import UsageError
from retinue.settings import Reload, Settings, format_duration

MOVED = {
    "agents.entries": "agents.list",
    "memory.search": "agents.defaults.memorySearch",
    "agent": "agents.defaults",
    "routing.bindings": "bindings",
    "routing.queue": "messages.queue",
    "tools.bash": "tools.exec",
    "identity": "agents.list[].identity",
}
"""Where keys that another version of OpenClaw knows stand here."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key, or with `field` None the entry of a map or list, which has no name of its own."""

    path: str
    shape: Shape
    model: type[Settings] | None = None
    attribute: str = ""
    field: FieldInfo | None = None

    @property
    def description(self) -> str:
        return documentation_of(self.model).get(self.attribute, "") if self.model else ""

    @property
    def is_required(self) -> bool:
        return self.field is not None and self.field.is_required()

    @property
    def default(self) -> Any:
        """The value without any configuration, as it would be written in the file."""
        if self.field is None or self.field.is_required():
            return None
        return _plain(self.field.get_default(call_default_factory=True))

    @property
    def pending(self) -> bool:
        return bool(self._extra.get("pending"))

    @property
    def reload(self) -> Reload:
        return "restart" if self._extra.get("reload") == "restart" else "live"

    @property
    def _extra(self) -> dict[str, Any]:
        extra = self.field.json_schema_extra if self.field else None
        return extra if isinstance(extra, dict) else {}


def fields_of(shape: Shape) -> dict[str, tuple[type[Settings], str]]:
    """The keys that an object of this shape may have: the name in the file to the model and the name in Python."""
    return {info.alias or name: (model, name) for model in shape.models for name, info in model.model_fields.items()}


def takes_any_key(shape: Shape) -> bool:
    """Whether keys beyond the known ones are welcome."""
    return shape.is_free or any(model.model_config.get("extra") == "allow" for model in shape.models)


def key_of(model: type[Settings], attribute: str, path: str) -> Key:
    info = model.model_fields[attribute]
    return Key(path, shape_of(info.annotation, tuple(info.metadata)), model, attribute, info)


def step_into(shape: Shape, segment: Segment, path: str) -> Key | None:
    """The key or entry that one step leads to; None where there is nothing."""
    if not isinstance(segment, str):
        return Key(path, shape_of(shape.items)) if shape.items is not None else None
    fields = fields_of(shape)
    if segment in fields:
        return key_of(*fields[segment], path)
    if shape.values is not None:
        return Key(path, shape_of(shape.values))
    return Key(path, shape_of(Any)) if takes_any_key(shape) else None


def find_key(root: type[Settings], path: Sequence[Segment]) -> Key | None:
    """The key that a path names; None where the configuration has no such key."""
    found = Key("", shape_of(root))
    for index, segment in enumerate(path):
        below = step_into(found.shape, segment, spell_path(path[: index + 1]))
        if below is None:
            return None
        found = below
    return found


def require_key(root: type[Settings], path: Sequence[Segment]) -> Key:
    """The key that a path names; raises `UsageError` with the nearest one where there is none."""
    key = find_key(root, path)
    if key is None:
        near = suggest_key(root, path)
        hint = f"Did you mean {near}?" if near else "`retinue config schema` lists the keys."
        raise UsageError(f"There is no key {spell_path(path)}. {hint}")
    return key


def every_key(root: type[Settings]) -> Iterator[Key]:
    """All keys, sections before what is in them; `[]` stands for an item and `<name>` for a name of your choice."""
    yield from _below(shape_of(root), "")


def _below(shape: Shape, path: str) -> Iterator[Key]:
    for alias, (model, attribute) in fields_of(shape).items():
        found = key_of(model, attribute, f"{path}.{alias}" if path else alias)
        yield found
        yield from _below(found.shape, found.path)
    if shape.items is not None:
        yield from _below(shape_of(shape.items), f"{path}[]")
    if shape.values is not None:
        yield from _below(shape_of(shape.values), f"{path}.<name>")


@cache
def _all_paths(root: type[Settings]) -> tuple[str, ...]:
    return tuple(key.path for key in every_key(root))


def suggest_key(root: type[Settings], path: Sequence[Segment]) -> str | None:
    """The known key that an unknown one probably means."""
    spelled = spell_path(path)
    for old, new in MOVED.items():
        if spelled == old or spelled.startswith(f"{old}."):
            return new
    last = path[-1]
    if not isinstance(last, str):
        return None
    parent = find_key(root, path[:-1])
    siblings = {name.lower(): name for name in fields_of(parent.shape)} if parent else {}
    near = get_close_matches(last.replace("_", "").lower(), siblings, n=1, cutoff=0.7)
    if near:
        return spell_path([*path[:-1], siblings[near[0]]])
    everywhere = _all_paths(root)
    same_name = [known for known in everywhere if known.rpartition(".")[2] == last]
    if same_name:
        fixed = [known for known in same_name if "[]" not in known and "<name>" not in known]
        return get_close_matches(spelled, fixed or same_name, n=1, cutoff=0.0)[0]
    anywhere = get_close_matches(spelled, everywhere, n=1, cutoff=0.75)
    return anywhere[0] if anywhere else None


def _plain(value: Any) -> Any:
    match value:
        case Settings():
            return value.model_dump(mode="json", by_alias=True)
        case timedelta():
            return format_duration(value)
        case list() | tuple() | set():
            return [_plain(each) for each in value]
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case _:
            return value
