"""What the owner inspects: logs, problems, risks, rights, plugins, MCP servers and channels."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from retinue.wire.agents import OfAgent
from retinue.wire.frames import Method, Nothing, Params, Wire
from retinue.wire.protocol import Scope


class TailLog(Params, frozen=True):
    """How many records, their minimum level, and a session (or a part of its key) or run."""

    limit: Annotated[int, Meta(ge=1, le=2_000)] = 200
    level: Literal["debug", "info", "warning", "error", "critical"] | None = None
    session: Annotated[str, Meta(max_length=500)] | None = None


class LogLine(Wire, frozen=True):
    """One record of the log, without secrets."""

    time: str
    level: str
    logger: str
    message: str
    session: str | None = None
    run: str | None = None


class LogLines(Wire, frozen=True):
    """The newest records, oldest first, and the path of the log."""

    path: str
    records: list[LogLine]


class RunDoctor(Params, frozen=True):
    """With `fix`, what can be fixed without losing data is fixed."""

    fix: bool = False


class DoctorFinding(Wire, frozen=True):
    """A finding: what is wrong, why that matters and what to do."""

    area: str
    severity: str
    what: str
    why: str
    todo: str
    fixable: bool


class DoctorReport(Wire, frozen=True):
    """All findings, and what was fixed."""

    findings: list[DoctorFinding]
    fixed: list[str]


class AuditRisks(Params, frozen=True):
    """With `fix`, permissions of files are restricted; nothing else is changed."""

    fix: bool = False


class RiskFinding(Wire, frozen=True):
    """A risky setting, permission or file."""

    id: str
    severity: str
    where: str
    what: str
    remedy: str
    fixable: bool


class RiskReport(Wire, frozen=True):
    """All risks, and what was fixed."""

    findings: list[RiskFinding]
    fixed: list[str]


class MatrixRow(Wire, frozen=True):
    """Whether a principal may do something with an agent, and what decides it."""

    principal: str
    agent: str
    capability: str
    decision: str
    by: str


class Matrix(Wire, frozen=True):
    rows: list[MatrixRow]


class PluginRow(Wire, frozen=True):
    """A plugin that was found; `reason` explains its state."""

    id: str
    version: str
    description: str
    state: str
    reason: str
    origin: str
    registers: list[str]


class PluginList(Wire, frozen=True):
    plugins: list[PluginRow]


class McpServerRow(Wire, frozen=True):
    """A configured MCP server, without its secrets."""

    name: str
    transport: str
    target: str
    enabled: bool


class McpServerList(Wire, frozen=True):
    servers: list[McpServerRow]


class ChannelRow(Wire, frozen=True):
    """An account of a channel, and whether the gateway listens on it."""

    channel: str
    account: str
    enabled: bool
    listening: bool
    reason: str = ""


class ChannelList(Wire, frozen=True):
    channels: list[ChannelRow]


LOGS_TAIL = Method("logs.tail", Scope.ADMIN, TailLog, LogLines, "Return the newest records of the log.")
DOCTOR = Method("doctor", Scope.ADMIN, RunDoctor, DoctorReport, "Check the home and report problems.", True)
SECURITY_AUDIT = Method("security.audit", Scope.ADMIN, AuditRisks, RiskReport, "Report risky settings and files.", True)
SECURITY_MATRIX = Method(
    "security.matrix", Scope.ADMIN, OfAgent, Matrix, "List what each kind of principal may do, and what decides it."
)
PLUGINS_LIST = Method("plugins.list", Scope.ADMIN, Nothing, PluginList, "List the plugins that were found.")
MCP_LIST = Method("mcp.list", Scope.ADMIN, Nothing, McpServerList, "List the configured MCP servers.")
CHANNELS_LIST = Method("channels.list", Scope.ADMIN, Nothing, ChannelList, "List the accounts of channels.")

METHODS = (LOGS_TAIL, DOCTOR, SECURITY_AUDIT, SECURITY_MATRIX, PLUGINS_LIST, MCP_LIST, CHANNELS_LIST)
