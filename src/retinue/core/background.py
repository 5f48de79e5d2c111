"""Background work: a failure is logged and does not stop other work."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec

P = ParamSpec("P")

log = logging.getLogger(__name__)


async def run_logged(what: str, work: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run something in the background; log an exception instead of raising it."""
    try:
        await work(*args, **kwargs)
    except Exception:  # border: tools, plugins, models and disks can fail here
        log.exception("%s failed", what)
