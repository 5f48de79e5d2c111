"""Conversion of structs to plain data, as written in a file."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from retinue.structs.declare import Declared, Field, default_of, fields_of, set_attributes

_WRITERS: dict[type, Callable[[Any], object]] = {}


def write_with(kind: type, write: Callable[[Any], object]) -> None:
    """Register a function that encodes values of a type that JSON does not have."""
    _WRITERS[kind] = write


def to_plain(value: Any, *, only_set: bool = False, omit_none: bool = False, omit_defaults: bool = False) -> Any:
    """Convert a struct, or a value of one, to plain data with the keys of the file.

    `only_set` omits keys that the decoded data did not set, `omit_none` keys without a value, `omit_defaults` keys
    with the default value.
    """

    def is_shown(struct: Declared, field: Field) -> bool:
        found = getattr(struct, field.attribute)
        is_default = omit_defaults and not field.is_required and found == default_of(type(struct), field.attribute)
        return not is_default and not (omit_none and found is None)

    def plain(value: Any) -> Any:
        if isinstance(value, Declared):
            chosen = set_attributes(value) if only_set else None
            shown = {
                field.key: plain(getattr(value, field.attribute))
                for field in fields_of(type(value)).values()
                if (chosen is None or field.attribute in chosen) and is_shown(value, field)
            }
            return shown | getattr(value, "other_keys", {})
        if isinstance(value, (list, tuple, set)):
            return [plain(each) for each in value]
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        if isinstance(value, enum.Enum):
            return value.value
        write = _WRITERS.get(type(value))
        return write(value) if write else value

    return plain(value)
