"""The keys of the configuration: path, type and documentation of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

import msgspec

from retinue.config.documentation import documentation_of
from retinue.config.key_types import Shape, shape_of
from retinue.config.keypath import Segment, format_key_path
from retinue.core.errors import UsageError
from retinue.settings import KeyInfo, Reload, Settings
from retinue.structs.declare import Field, default_of, fields_of
from retinue.structs.plain import to_plain

MOVED = {
    "agents.entries": "agents.list",
    "memory.search": "agents.defaults.memorySearch",
    "agent": "agents.defaults",
    "routing.bindings": "bindings",
    "routing.queue": "messages.queue",
    "tools.bash": "tools.exec",
    "identity": "agents.list[].identity",
}
"""The current names of keys that other versions of OpenClaw use."""


class Key(msgspec.Struct, frozen=True):
    """One key; `field` is None for an entry of a map or list."""

    path: str
    shape: Shape
    section: type[Settings] | None = None
    field: Field | None = None

    @property
    def description(self) -> str:
        return documentation_of(self.section).get(self.field.attribute, "") if self.section and self.field else ""

    @property
    def is_required(self) -> bool:
        return self.field is not None and self.field.is_required

    @property
    def default(self) -> Any:
        """The default value, as it would be written in the file."""
        if self.section is None or self.field is None or self.field.is_required:
            return None
        return to_plain(default_of(self.section, self.field.attribute))

    @property
    def pending(self) -> bool:
        return self.info.pending

    @property
    def reload(self) -> Reload:
        return self.info.reload

    @property
    def info(self) -> KeyInfo:
        info = self.field.info if self.field else None
        return info if isinstance(info, KeyInfo) else KeyInfo()


def keys_of(shape: Shape) -> dict[str, tuple[type[Settings], Field]]:
    """Return the keys of an object of this type, with the sections that declare them."""
    return {name: (section, field) for section in shape.sections for name, field in fields_of(section).items()}


def takes_any_key(shape: Shape) -> bool:
    """Return whether undeclared keys are accepted."""
    return shape.is_free or any(section.unknown_keys == "keep" for section in shape.sections)


def key_of(section: type[Settings], field: Field, path: str) -> Key:
    return Key(path, shape_of(field.type, field.info.limits), section, field)


def step_into(shape: Shape, segment: Segment, path: str) -> Key | None:
    """Return the key or entry at one step of a path; None if there is none."""
    if not isinstance(segment, str):
        return Key(path, shape_of(shape.items)) if shape.items is not None else None
    keys = keys_of(shape)
    if segment in keys:
        return key_of(*keys[segment], path)
    if shape.values is not None:
        return Key(path, shape_of(shape.values))
    return Key(path, shape_of(Any)) if takes_any_key(shape) else None


def find_key(root: type[Settings], path: Sequence[Segment]) -> Key | None:
    """Return the key at a path; None if the configuration has no such key."""
    found = Key("", shape_of(root))
    for index, segment in enumerate(path):
        below = step_into(found.shape, segment, format_key_path(path[: index + 1]))
        if below is None:
            return None
        found = below
    return found


def require_key(root: type[Settings], path: Sequence[Segment]) -> Key:
    """Return the key at a path; raise `UsageError` with the most similar one if there is none."""
    key = find_key(root, path)
    if key is None:
        near = suggest_key(root, path)
        hint = f"Did you mean {near}?" if near else "`retinue config schema` lists the keys."
        raise UsageError(f"There is no key {format_key_path(path)}. {hint}")
    return key


def every_key(root: type[Settings]) -> Iterator[Key]:
    """Yield all keys, sections before their keys; `[]` is an item of a list and `<name>` any key of a map."""
    yield from _below(shape_of(root), "")


def _below(shape: Shape, path: str) -> Iterator[Key]:
    for name, (section, field) in keys_of(shape).items():
        found = key_of(section, field, f"{path}.{name}" if path else name)
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
    """Return the known key that an unknown one probably means."""
    spelled = format_key_path(path)
    for old, new in MOVED.items():
        if spelled == old or spelled.startswith(f"{old}."):
            return new
    last = path[-1]
    if not isinstance(last, str):
        return None
    parent = find_key(root, path[:-1])
    siblings = {name.lower(): name for name in keys_of(parent.shape)} if parent else {}
    near = get_close_matches(last.replace("_", "").lower(), siblings, n=1, cutoff=0.7)
    if near:
        return format_key_path([*path[:-1], siblings[near[0]]])
    everywhere = _all_paths(root)
    same_name = [known for known in everywhere if known.rpartition(".")[2] == last]
    if same_name:
        fixed = [known for known in same_name if "[]" not in known and "<name>" not in known]
        return get_close_matches(spelled, fixed or same_name, n=1, cutoff=0.0)[0]
    anywhere = get_close_matches(spelled, everywhere, n=1, cutoff=0.75)
    return anywhere[0] if anywhere else None
