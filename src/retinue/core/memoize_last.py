"""A cache of the last result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class MemoizeLast(Generic[T]):
    """Caches the last result as long as its arguments are the same objects.

    Arguments are compared by identity, so they must be immutable.
    """

    def __init__(self) -> None:
        self._made: tuple[tuple[object, ...], T] | None = None

    def get(self, make: Callable[[], T], *of: object) -> T:
        if self._made is None or any(one is not other for one, other in zip(self._made[0], of, strict=True)):
            self._made = of, make()
        return self._made[1]
