"""The types of keys, derived from type annotations."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec

from retinue.settings import Settings
from retinue.structs.describe import arms_of, describe


class Shape(msgspec.Struct, frozen=True):
    """What a value can contain: the keys of an object, the items of a list, the values of a map."""

    sections: tuple[type[Settings], ...]
    items: Any
    values: Any
    is_free: bool
    takes_text: bool
    words: str
    allowed: tuple[Any, ...]

    @property
    def is_leaf(self) -> bool:
        """Whether the value contains no declared keys."""
        return not self.sections and not any(_holds_sections(below) for below in (self.items, self.values))


def shape_of(hint: Any, limits: Mapping[str, Any] | None = None) -> Shape:
    """Return the shape for a type and the limits of its key."""
    arms = [arm for arm in arms_of(hint) if arm is not NoneType]
    lists = [get_args(arm)[0] for arm in arms if get_origin(arm) in (list, tuple, set)]
    maps = [get_args(arm)[1] for arm in arms if get_origin(arm) is dict]
    allowed = tuple(value for arm in arms if get_origin(arm) is Literal for value in get_args(arm))
    return Shape(
        sections=tuple(arm for arm in arms if isinstance(arm, type) and issubclass(arm, Settings)),
        items=lists[0] if lists else None,
        values=maps[0] if maps else None,
        is_free=any(arm is Any or arm is object for arm in arms),
        takes_text=any(arm is str or get_origin(arm) is Literal for arm in arms)
        and not any(arm in (bool, int, float) for arm in arms)
        and all(isinstance(value, str) for value in allowed),
        words=describe(hint, limits),
        allowed=allowed,
    )


def _holds_sections(hint: Any) -> bool:
    return hint is not None and not shape_of(hint).is_leaf
