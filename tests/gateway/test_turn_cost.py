"""The work of a warm turn, as the number of Python functions that it calls."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

import retinue
from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent
from retinue.core.keys import SessionKey
from tests.gateway.conftest import Hall

pytestmark = pytest.mark.anyio

MAX_CALLS = 2_390
"""About a tenth more than a warm turn makes. What depends only on the session is computed once, not in every turn."""

PACKAGE = str(Path(retinue.__file__).parent)
OTHERS = tuple(
    f"{PACKAGE}/{name}" for name in ("testing/", "client/", "gateway/reload.py", "automation/clock_jumps.py")
)
"""What runs in the same thread as the turn: the model server and client of the test, and the gateway's timers."""


class CallCounter:
    """Counts the calls of functions of Retinue in this thread while it is entered."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> CallCounter:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE) and not name.startswith(OTHERS):
            self.calls += 1


async def ignore(event: TurnEvent) -> None:
    """The `Emit` of a turn that is not watched."""


@pytest.mark.slow
async def test_a_warm_turn_calls_no_more_functions_than_before(hall: Hall) -> None:
    key = SessionKey.parse("agent:main:main")
    counts = []
    async with hall.client() as client:
        for number in range(3):
            await client.say(Inbound(f"Hello {number}.", key), ignore)
        for number in range(4):
            with CallCounter() as counter:
                await client.say(Inbound(f"Again {number}.", key), ignore)
            counts.append(counter.calls)
    # Timers of the gateway may fire during a turn, so the best of several counts.
    assert min(counts) <= MAX_CALLS, f"A warm turn makes {min(counts)} calls instead of {MAX_CALLS}: {counts}"
    assert min(counts) > MAX_CALLS // 2, "The turn became much cheaper: lower MAX_CALLS."
