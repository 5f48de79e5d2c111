"""The state of the gateway."""

from __future__ import annotations

import os

from retinue import __version__
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.gateway.metrics import memory_megabytes
from retinue.wire import system as wire
from retinue.wire.frames import Nothing

registry = MethodRegistry()


@registry.implements(wire.HEALTH)
async def health(call: Call, params: Nothing) -> wire.Health:
    return wire.Health(call.gateway.state.ready, call.gateway.state.draining)


@registry.implements(wire.STATUS)
async def status(call: Call, params: Nothing) -> wire.Status:
    gateway, state = call.gateway, call.gateway.state
    home = gateway.runtime.home
    return wire.Status(
        version=__version__,
        pid=os.getpid(),
        epoch=gateway.hub.epoch,
        started_at=state.started_at,
        uptime_seconds=(home.clock.now() - state.started_at).total_seconds(),
        home=str(home.paths.path),
        address=state.address,
        connections=len(gateway.connections),
        turns_running=gateway.runtime.services.lanes.running,
        turns_waiting=gateway.runtime.services.lanes.waiting,
        sessions_active=gateway.runtime.dispatcher.active,
        memory_mb=memory_megabytes(),
        config_hash=gateway.reloader.hash,
        config_problems=list(gateway.reloader.problems),
        draining=state.draining,
    )
