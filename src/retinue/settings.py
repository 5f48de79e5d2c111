"""The base of every settings model: frozen, camelCase in files, each key described where it is declared.

Domain packages subclass `Settings`; `config` assembles them and adds positions, origins and editing.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

Reload = Literal["live", "restart"]


class Settings(BaseModel):
    """A group of configuration keys.

    The docstring under a key is its documentation; `config.documentation` reads it from the source when somebody asks,
    because pydantic would do so for every key at every start.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")


def key(default: Any = ..., *, reload: Reload = "live", pending: bool = False, **limits: Any) -> Any:
    """Declare a configuration key; its docstring is its documentation.

    `reload` tells whether a change takes effect in a running gateway; `pending` marks a key that is accepted, so that
    existing configurations validate, but changes nothing yet.
    """
    if isinstance(default, (list, dict, set)):
        limits["default_factory"] = default.copy
    elif isinstance(default, type):
        limits["default_factory"] = default
    else:
        limits["default"] = default
    return Field(json_schema_extra={"reload": reload, "pending": pending}, **limits)


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def parse_duration(value: object) -> timedelta:
    """Read `30m`, `1h30m`, `500ms`; a bare number is minutes, as people write it for the heartbeat."""
    if isinstance(value, timedelta):
        return value
    text = str(value).strip().lower()
    pieces = _DURATION.findall(text)
    if not pieces or _DURATION.sub("", text).strip():
        raise ValueError("expected a duration such as 30m, 1h30m or 45s")
    return timedelta(seconds=sum(float(number) * _SECONDS[unit or "m"] for number, unit in pieces))


def format_duration(value: timedelta) -> str:
    """The shortest spelling of a duration that `parse_duration` reads back."""
    if not value:
        return "0m"
    left = round(value.total_seconds() * 1000)
    out = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            out.append(f"{count}{unit}")
    return "".join(out)


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration, return_type=str)]


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(b|kb|mb|gb|tb)?")
_BYTES = {"b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3, "tb": 1024**4}


def size_in_bytes(value: int | str) -> int:
    """Read `2mb`, `500kb` or a plain number of bytes."""
    match = _SIZE.fullmatch(str(value).strip().lower())
    if match is None:
        raise ValueError("expected a size such as 500kb, 2mb or a number of bytes")
    return int(float(match[1]) * _BYTES[match[2] or "b"])
