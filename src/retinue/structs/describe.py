"""Descriptions of types for error messages and documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from retinue.structs.declare import Declared

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    timedelta: "a duration such as 30m",
}
_PLURALS = {
    "a whole number": "whole numbers",
    "a number": "numbers",
    "text": "texts",
    "an object": "objects",
    "any value": "values",
}


def arms_of(hint: Any) -> Iterator[Any]:
    """Return the alternatives of a type, without `Annotated`; a type that is not a union is its only alternative."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from arms_of(get_args(hint)[0])
    elif origin in (Union, UnionType):
        for arm in get_args(hint):
            yield from arms_of(arm)
    else:
        yield getattr(hint, "__supertype__", hint)


def describe(hint: Any, limits: Mapping[str, Any] | None = None) -> str:
    """Describe a type and its limits, such as `a whole number, at least 1`."""
    words: list[str] = []
    for arm in arms_of(hint):
        word = _describe_arm(arm)
        if arm is not NoneType and word not in words:
            words.append(word)
    return " or ".join(words) + _describe_limits(limits or {})


def _describe_arm(arm: Any) -> str:
    origin = get_origin(arm)
    if arm in _WORDS:
        return _WORDS[arm]
    if origin is Literal:
        values = [json.dumps(value) for value in get_args(arm)]
        return values[0] if len(values) == 1 else f"one of {', '.join(values)}"
    if origin in (list, tuple, set):
        item = describe(get_args(arm)[0])
        return f"a list of {_PLURALS.get(item, f'values, each {item}')}"
    if isinstance(arm, type) and issubclass(arm, Declared):
        return "text or an object" if getattr(arm, "text_is_enough", False) else "an object"
    if isinstance(arm, type) and arm.__name__.endswith("Secret"):
        return "a reference to a secret"
    return "an object" if origin is dict else "any value"


def _describe_limits(limits: Mapping[str, Any]) -> str:
    names = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    words = [f"{name} {limits[limit]}" for limit, name in names.items() if limit in limits]
    return f", {' and '.join(words)}" if words else ""
