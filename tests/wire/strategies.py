"""Values for property tests, derived from the types that declare them."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType

from retinue.core.approval import ApprovalRequest
from retinue.core.keys import AgentId, SessionKey
from retinue.wire.frames import Base64

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
"""Text with every kind of character, lone surrogates included."""
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | ANY_TEXT,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(ANY_TEXT, below, max_size=3),
    max_leaves=5,
)
SESSIONS = st.sampled_from(
    [
        SessionKey.parse("agent:work:telegram:group:!room:example.org"),
        SessionKey.parse("hook:mail", default_agent=AgentId("other")),
        SessionKey.main(AgentId("main")),
    ]
)
_LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: ANY_TEXT,
    bool: st.booleans(),
    float: NUMBERS,
    NoneType: st.none(),
    UnsetType: st.just(UNSET),
    Any: JSON,
    SessionKey: SESSIONS,
    datetime: st.datetimes(timezones=st.just(UTC))
    | st.just(datetime(2026, 1, 2, tzinfo=UTC) + timedelta(microseconds=1)),
    Base64: st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode()),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type, within the limits that it declares."""
    try:
        if hint in _LEAVES:
            return _LEAVES[hint]
    except TypeError:
        pass  # not hashable: a type with a list of metadata
    if isinstance(hint, NewType):
        return values_of(hint.__supertype__)
    if hint is int:
        return st.integers(-(2**53), 2**53)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _limited(inner[0], next(each for each in inner[1:] if isinstance(each, Meta)))
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, UnionType):
        return st.one_of([values_of(each) for each in inner])
    if origin is tuple:
        return st.lists(values_of(inner[0]), max_size=3).map(tuple)
    if origin is list:
        return st.lists(values_of(inner[0]), max_size=3)
    if origin in (dict, Mapping):
        return st.dictionaries(values_of(inner[0]), values_of(inner[1]), max_size=3)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _structs(hint)
    raise TypeError(f"there are no values for {hint}")


@cache
def _structs(kind: type[Struct]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.name: values_of(hints[field.name]) for field in msgspec.structs.fields(kind)}
    made: st.SearchStrategy[Any] = st.builds(kind, **fields)
    if issubclass(kind, ApprovalRequest):  # its agent is always that of its session
        return made.map(lambda request: msgspec.structs.replace(request, agent=request.session.agent))
    return made


def _limited(base: Any, limits: Meta) -> st.SearchStrategy[Any]:
    if base is datetime:
        return values_of(datetime)
    if limits.pattern is not None:
        longest = limits.max_length or 1_000
        return st.from_regex(re.compile(limits.pattern, re.ASCII), fullmatch=True).filter(
            lambda text: len(text) <= longest
        )
    if base is str:
        size = {
            "min_size": limits.min_length or 0,
            "max_size": max(limits.min_length or 0, min(limits.max_length or 8, 8)),
        }
        return st.text(st.characters(exclude_categories=()), **size)
    if base is int:
        return st.integers(*(None if limit is None else int(limit) for limit in (limits.ge, limits.le)))
    if base is float:
        return st.floats(limits.ge, limits.le)
    origin, inner = get_origin(base), get_args(base)
    items = st.lists(values_of(inner[0]), min_size=limits.min_length or 0, max_size=max(limits.min_length or 0, 3))
    return items.map(tuple) if origin is tuple else items
