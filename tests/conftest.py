"""What every test shares."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("quick", max_examples=25)
"""For the fast tier; `make test` tries the usual number."""


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
