"""A background service, and what runs at the start and the end of the gateway."""

from __future__ import annotations

import anyio

from retinue.core.extension import PluginContext

EVENTS: list[str] = []


async def init(context: PluginContext) -> None:
    EVENTS.append(f"init {context.config['word']}")


async def run(context: PluginContext) -> None:
    EVENTS.append("running")
    if EVENTS.count("running") == 1:
        raise RuntimeError("the first try fails")
    await anyio.sleep_forever()


async def shutdown(context: PluginContext) -> None:
    EVENTS.append("shutdown")
