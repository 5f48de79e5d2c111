"""How the gateway itself is doing."""

from __future__ import annotations

from datetime import datetime

from retinue.wire.frames import Nothing, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope


class Health(Wire):
    """Whether it serves."""

    ok: bool
    draining: bool


class Status(Wire):
    """What it is doing."""

    version: str
    pid: int
    epoch: str
    started_at: datetime
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


HEALTH = Method("health", Scope.READ, Nothing, Health, "Whether the gateway serves.")
STATUS = Method("status", Scope.READ, Nothing, Status, "What the gateway is doing.")

METHODS = (HEALTH, STATUS)
