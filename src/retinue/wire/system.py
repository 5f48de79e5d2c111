"""The state of the gateway."""

from __future__ import annotations

from retinue.wire.frames import Nothing, Time, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope


class Health(Wire, frozen=True):
    """Whether the gateway serves requests."""

    ok: bool
    draining: bool


class Status(Wire, frozen=True):
    """The state of the gateway in numbers."""

    version: str
    pid: int
    epoch: str
    started_at: Time
    uptime_seconds: float
    home: str
    address: str
    connections: int
    turns_running: int
    turns_waiting: int
    sessions_active: int
    memory_mb: float
    config_hash: str
    config_problems: list[str]
    draining: bool


HEALTH = Method("health", Scope.READ, Nothing, Health, "Report whether the gateway serves requests.")
STATUS = Method("status", Scope.READ, Nothing, Status, "Report the state of the gateway.")

METHODS = (HEALTH, STATUS)
