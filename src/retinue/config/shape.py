"""What may stand at one place of the configuration, read off a type annotation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from datetime import timedelta
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types

from retinue.settings import Settings

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


@dataclass(frozen=True, slots=True)
class Shape:
    """The ways on from a place: into an object's keys, a list's items, a map's values."""

    models: tuple[type[Settings], ...]
    items: Any
    values: Any
    is_free: bool
    takes_text: bool
    words: str
    allowed: tuple[Any, ...]

    @property
    def is_leaf(self) -> bool:
        """Whether nothing below this place has a name of its own."""
        return not self.models and not any(_holds_models(below) for below in (self.items, self.values))


def shape_of(annotation: Any, limits: tuple[Any, ...] = ()) -> Shape:
    """The shape that an annotation, with the limits that stand next to it, describes."""
    arms = [arm for arm in _arms(annotation) if arm is not NoneType]
    lists = [get_args(arm)[0] for arm in arms if get_origin(arm) in (list, tuple, set)]
    maps = [get_args(arm)[1] for arm in arms if get_origin(arm) is dict]
    allowed = tuple(value for arm in arms if get_origin(arm) is Literal for value in get_args(arm))
    return Shape(
        models=tuple(arm for arm in arms if isinstance(arm, type) and issubclass(arm, Settings)),
        items=lists[0] if lists else None,
        values=maps[0] if maps else None,
        is_free=any(arm is Any or arm is object for arm in arms),
        takes_text=any(arm is str or get_origin(arm) is Literal for arm in arms)
        and not any(arm in (bool, int, float) for arm in arms)
        and all(isinstance(value, str) for value in allowed),
        words=_describe(arms) + _describe_limits(limits),
        allowed=allowed,
    )


def _arms(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _arms(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for arm in get_args(annotation):
            yield from _arms(arm)
    else:
        yield annotation


def _holds_models(annotation: Any) -> bool:
    return annotation is not None and not shape_of(annotation).is_leaf


def _describe(arms: list[Any]) -> str:
    words: list[str] = []
    for arm in arms:
        word = _describe_arm(arm)
        if word not in words:
            words.append(word)
    return " or ".join(words)


def _describe_arm(arm: Any) -> str:
    origin = get_origin(arm)
    if arm in _WORDS:
        return _WORDS[arm]
    if origin is Literal:
        values = [json.dumps(value) for value in get_args(arm)]
        return values[0] if len(values) == 1 else f"one of {', '.join(values)}"
    if origin in (list, tuple, set):
        item = shape_of(get_args(arm)[0]).words
        return f"a list of {_PLURALS.get(item, f'values, each {item}')}"
    if is_dataclass(arm):
        return "a reference to a secret"
    if isinstance(arm, type) and issubclass(arm, Settings):
        return "text or an object" if getattr(arm, "text_is_enough", False) else "an object"
    if origin is dict:
        return "an object"
    return "any value"


def _describe_limits(limits: tuple[Any, ...]) -> str:
    words = []
    for limit in limits:
        match limit:
            case annotated_types.Ge(ge=bound):
                words.append(f"at least {bound}")
            case annotated_types.Gt(gt=bound):
                words.append(f"more than {bound}")
            case annotated_types.Le(le=bound):
                words.append(f"at most {bound}")
            case annotated_types.Lt(lt=bound):
                words.append(f"less than {bound}")
            case _:
                pass
    return f", {' and '.join(words)}" if words else ""
