"""A process that swaps folders for links while tools work never gets them to leave the workspace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.storage.files import Resolver
from tests.security.races import OPERATIONS, Operation, memory_place, race, read_naively

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

RACES = 1_000


@pytest.fixture
def place() -> Iterator[Path]:
    with memory_place() as folder:
        yield folder


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
async def test_no_operation_escapes(operation: Operation, place: Path) -> None:
    for attempt in range(20):
        (place / str(attempt)).mkdir()
        arena = await race(operation, RACES, place / str(attempt))
        assert arena.escapes == []
        if arena.outcomes["done"] > 0:
            return
    pytest.fail("the operation never worked, so nothing was shown")


@pytest.mark.parametrize("operation", OPERATIONS[:3], ids=lambda operation: operation.__name__)
async def test_no_operation_escapes_where_the_kernel_does_not_help(operation: Operation, place: Path) -> None:
    for attempt in range(20):
        (place / str(attempt)).mkdir()
        arena = await race(operation, RACES, place / str(attempt), Resolver.WALK)
        assert arena.escapes == []
        if min(arena.outcomes.values()) > 0:
            return
    pytest.fail("one of both never happened")


async def test_these_races_catch_who_looks_first_and_opens_then(place: Path) -> None:
    """Without this, the tests above could pass because nothing ever raced."""
    for attempt in range(50):
        (place / str(attempt)).mkdir()
        if (await race(read_naively, RACES, place / str(attempt))).escapes:
            return
    pytest.fail("the careless reader was never caught")
