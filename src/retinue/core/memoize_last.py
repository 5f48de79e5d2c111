"""Keeping the last thing that was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class MemoizeLast(Generic[T]):
    """What was made last, given again for as long as it would be made of the very same things.

    They are compared by identity, so this is for things that are replaced and never changed.
    """

    def __init__(self) -> None:
        self._made: tuple[tuple[object, ...], T] | None = None

    def get(self, make: Callable[[], T], *of: object) -> T:
        if self._made is None or any(one is not other for one, other in zip(self._made[0], of, strict=True)):
            self._made = of, make()
        return self._made[1]
