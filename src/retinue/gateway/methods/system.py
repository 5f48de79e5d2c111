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
    foundation = gateway.runtime.foundation
    return wire.Status(
        version=__version__,
        pid=os.getpid(),
        epoch=gateway.hub.epoch,
        started_at=state.started_at,
        uptime_seconds=(foundation.clock.now() - state.started_at).total_seconds(),
        home=str(foundation.home.path),
        address=state.address,
        connections=len(gateway.connections),
        turns_running=gateway.runtime.lanes.running,
        turns_waiting=gateway.runtime.lanes.waiting,
        sessions_active=gateway.switchboard.active,
        memory_mb=memory_megabytes(),
        config_hash=gateway.reloader.hash,
        config_problems=list(gateway.reloader.problems),
        draining=state.draining,
    )
