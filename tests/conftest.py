"""What every test shares."""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run of a tree: whether a change passes must not depend on luck. New ones are looked for
# with `--hypothesis-profile=search`; the fast tier takes the quick profile.
# No example has a deadline: how long one takes depends on what else the machine does. Work that grows too fast is found
# by `tests.stopwatch`.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", parent=settings.get_profile("steady"), max_examples=10)
settings.register_profile("search", parent=settings.get_profile("steady"), derandomize=False, max_examples=1_000)
settings.load_profile("steady")


_ALL_SLOW = re.compile(r"^pytestmark = .*\bpytest\.mark\.slow\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules whose tests are all slow, if none is wanted: what they import costs each worker a second."""
    if config.getoption("markexpr") != "not slow" or collection_path.suffix != ".py":
        return None
    return True if _ALL_SLOW.search(collection_path.read_text("utf-8")) else None


def pytest_collection_finish() -> None:
    """All modules are loaded and stay: looking for garbage among them again and again would cost much."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Take back what a test did to the process's logging: a command run in this process sets it up for good."""
    everything, ours = logging.getLogger(), logging.getLogger("retinue")
    handlers, level = list(everything.handlers), ours.level
    yield
    for handler in everything.handlers:
        if handler not in handlers:
            handler.close()
    everything.handlers[:] = handlers
    ours.setLevel(level)
