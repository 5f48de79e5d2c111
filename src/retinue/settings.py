"""The base classes of configuration sections: frozen, camelCase in files, with a docstring for each key.

Domain packages subclass `Settings`; `config` assembles them and adds positions, origins and editing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, TypeVar, overload

from msgspec import UNSET

from retinue.structs.declare import Declared, FieldInfo, Parsed, UnknownKeys, declare, write_with

Reload = Literal["live", "restart"]
T = TypeVar("T")
S = TypeVar("S", bound="Settings")


class Settings(Declared, rename="camel"):
    """A group of configuration keys.

    The docstring under a key is its documentation. `config.keys` reads it from the source when it is needed,
    so that it costs nothing at start.
    """


class OpenSettings(Settings):
    """A group that also accepts undeclared keys."""

    unknown_keys: ClassVar[UnknownKeys] = "keep"

    other_keys: dict[str, Any] = declare({})


class KeyInfo(FieldInfo, frozen=True, kw_only=True):
    """The declaration of a key besides its type."""

    reload: Reload = "live"
    pending: str = ""


@overload
def key(*, reload: Reload = ..., pending: str = ..., **limits: Any) -> Any: ...
@overload
def key(
    default: type[S],
    *,
    name: str | None = ...,
    reload: Reload = ...,
    pending: str = ...,
    check: Callable[[Any], object] | None = ...,
    **limits: Any,
) -> S: ...
@overload
def key(
    default: T,
    *,
    name: str | None = ...,
    reload: Reload = ...,
    pending: str = ...,
    check: Callable[[Any], object] | None = ...,
    **limits: Any,
) -> T: ...
def key(
    default: Any = UNSET,
    *,
    name: str | None = None,
    reload: Reload = "live",
    pending: str = "",
    check: Callable[[Any], object] | None = None,
    **limits: Any,
) -> Any:
    """Declare a configuration key; its docstring is its documentation.

    The default may be the class of a section. `reload` says whether a change takes effect in a running gateway or
    needs a restart. `pending` is the reason why a key has no effect yet; it is accepted, so that existing files
    validate. `check` raises `ValueError` for a decoded value that is not valid; `limits` are `ge`, `gt`, `le`, `lt` and
    `pattern`.
    """
    return KeyInfo(default=default, name=name, reload=reload, pending=pending, check=check, limits=limits)


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def parse_duration(value: object) -> timedelta:
    """Parse `30m`, `1h30m` or `500ms`; a bare number is minutes, as people write it for the heartbeat."""
    if isinstance(value, timedelta):
        return value
    text = str(value).strip().lower()
    pieces = _DURATION.findall(text)
    if not pieces or _DURATION.sub("", text).strip():
        raise ValueError("expected a duration such as 30m, 1h30m or 45s")
    return timedelta(seconds=sum(float(number) * _SECONDS[unit or "m"] for number, unit in pieces))


def format_duration(value: timedelta) -> str:
    """Format a duration as the shortest text that `parse_duration` reads back."""
    if not value:
        return "0m"
    left = round(value.total_seconds() * 1000)
    out = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            out.append(f"{count}{unit}")
    return "".join(out)


write_with(timedelta, format_duration)
Duration = Annotated[timedelta, Parsed(parse_duration)]


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(b|kb|mb|gb|tb)?")
_BYTES = {"b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3, "tb": 1024**4}


def size_in_bytes(value: int | str) -> int:
    """Parse `2mb`, `500kb` or a plain number of bytes."""
    match = _SIZE.fullmatch(str(value).strip().lower())
    if match is None:
        raise ValueError("expected a size such as 500kb, 2mb or a number of bytes")
    return int(float(match[1]) * _BYTES[match[2] or "b"])
