"""The services of the process: databases, queues and running commands, which a reload does not replace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from retinue.dispatch.inbox import Inbox
from retinue.dispatch.lanes import Lanes
from retinue.dispatch.outbox import Outbox
from retinue.runtime.telemetry.tracing import Tracer
from retinue.storage.database import Database
from retinue.toolkit.processes.command_table import CommandTable
from retinue.tools.approvals.broker import ApprovalBroker


class Services(msgspec.Struct, frozen=True, eq=False):
    """The services of one process."""

    database: Database
    job_database: Database
    """The database with the jobs: the home's own, unless `cron.store` names another one."""
    inbox: Inbox
    outbox: Outbox
    lanes: Lanes
    commands: CommandTable
    approvals: ApprovalBroker
    tracer: Tracer


class GatewayControl(msgspec.Struct, frozen=True):
    """The interface with which an agent reloads the configuration or restarts the gateway of its process."""

    apply: Callable[[], Awaitable[Mapping[str, Any]]]
    restart: Callable[[str], None]
