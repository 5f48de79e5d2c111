"""The JSON codec of stored values, derived from their declarations.

The text itself is written and read by the standard library: msgspec refuses lone surrogates, which broken clients and
models produce, and writes NaN as null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import NoneType
from typing import Any, TypeVar

import msgspec

from retinue.core.clock import format_moment

T = TypeVar("T")


def to_plain(value: msgspec.Struct) -> dict[str, Any]:
    """Convert a value to plain data with its declared names; times have a fixed width and durations are seconds."""
    plain: dict[str, Any] = _plain_times(
        msgspec.to_builtins(value, builtin_types=(datetime, timedelta), enc_hook=_plain)
    )
    return plain


def from_plain(data: Mapping[str, Any], kind: type[T]) -> T:
    """Convert plain data to a value; unknown names are ignored. Raise `ValueError` if the data does not fit.

    A field may hold an instance of its type already.
    """
    return msgspec.convert(data, kind)


def dump_json(data: Mapping[str, Any]) -> str:
    """Return JSON text in ASCII, so that a lone surrogate can be stored."""
    return json.dumps(data, ensure_ascii=True, separators=(",", ":"))


def load_json(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; raise `ValueError` if the text is not one."""
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


_FINAL = frozenset({str, int, float, bool, NoneType})
"""Types without times in them; most values have one, and every message is converted twice."""


def _plain_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: part if type(part) in _FINAL else _plain_times(part) for name, part in value.items()}
    if isinstance(value, list):
        return [part if type(part) in _FINAL else _plain_times(part) for part in value]
    if isinstance(value, datetime):
        return format_moment(value)
    return value.total_seconds() if isinstance(value, timedelta) else value
