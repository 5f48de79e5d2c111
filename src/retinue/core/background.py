"""Work that nobody waits for: a failure of one piece is logged and ends nothing else."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec

P = ParamSpec("P")

log = logging.getLogger(__name__)


async def run_logged(what: str, work: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do something in the background of a process that must go on."""
    try:
        await work(*args, **kwargs)
    except Exception:  # border: tools, plugins, models and disks fail in there
        log.exception("%s failed", what)
