"""Who a command talks to: the gateway of the home where one runs, else a runtime of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from retinue.client import Client
    from retinue.runtime.foundation import Foundation
    from retinue.runtime.runtime import Runtime


@asynccontextmanager
async def open_assistant(
    foundation: Foundation, *, skills: tuple[Path, ...] = (), asks: bool = False
) -> AsyncIterator[Runtime | Client]:
    """An assistant while the block runs. Skills for one run alone are nothing that a gateway could know of."""
    from retinue.runtime.runtime import open_runtime
    from retinue.storage.instance import find_instance

    if not skills and find_instance(foundation.home) is not None:
        from retinue.client import open_local_client

        async with open_local_client(foundation.home, name="retinue chat", asks=asks) as client:
            if client is not None:
                yield client
                return
    async with open_runtime(foundation, extra_skills=skills) as runtime:
        yield runtime
