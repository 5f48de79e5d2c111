"""How the gateway itself is doing."""

from __future__ import annotations

import os
from pathlib import Path

from retinue import __version__
from retinue.gateway.gateway import Call
from retinue.gateway.registry import Registry
from retinue.wire import system as wire
from retinue.wire.frames import Nothing

registry = Registry()

_STATM = Path("/proc/self/statm")


@registry.carries_out(wire.HEALTH)
async def health(call: Call, params: Nothing) -> wire.Health:
    return wire.Health(ok=call.gateway.ready, draining=call.gateway.draining)


@registry.carries_out(wire.STATUS)
async def status(call: Call, params: Nothing) -> wire.Status:
    gateway = call.gateway
    home = gateway.runtime.home
    return wire.Status(
        version=__version__,
        pid=os.getpid(),
        epoch=gateway.hub.epoch,
        started_at=gateway.started_at,
        uptime_seconds=(home.clock.now() - gateway.started_at).total_seconds(),
        home=str(home.paths.path),
        address=gateway.address,
        connections=len(gateway.connections),
        turns_running=gateway.runtime.services.lanes.running,
        turns_waiting=gateway.runtime.services.lanes.waiting,
        sessions_active=gateway.runtime.dispatcher.active,
        memory_mb=memory_megabytes(),
        config_hash=gateway.reloader.hash,
        config_problems=list(gateway.reloader.problems),
        draining=gateway.draining,
    )


def memory_megabytes() -> float:
    """What the process has in memory; 0 where the system does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1_048_576
    except (OSError, ValueError, IndexError):
        return 0.0
