"""What the owner inspects: logs, problems, risks, rights, plugins, MCP servers and channels."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from retinue.wire.agents import OfAgent
from retinue.wire.frames import Done, Method, Name, Nothing, Params, Time, Wire
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


class McpTool(Wire, frozen=True):
    """A tool of an MCP server."""

    name: str
    description: str


class OfServer(Params, frozen=True, kw_only=True):
    """A configured MCP server."""

    server: Annotated[str, Meta(min_length=1, max_length=200)]


class McpTrial(Wire, frozen=True):
    """What a server offers, or why it cannot be used and what its program printed."""

    tools: list[McpTool]
    problem: str = ""
    printed: str = ""


class ToolRow(Wire, frozen=True):
    """A tool, whether the agent's main session has it for its owner, and the layer and rule that decide it.

    A deferred tool is not in every prompt; the agent finds it by a search.
    """

    name: str
    summary: str
    decision: Literal["allow", "ask", "deny"]
    layer: str
    because: str
    deferred: bool
    owner_only: bool


class ToolList(Wire, frozen=True):
    tools: list[ToolRow]


class ChannelRow(Wire, frozen=True):
    """An account of a channel, and whether the gateway listens on it.

    `state` is that of its listener, `waiting` the number of messages that wait to be sent, `heardAt` the time of the
    last message.
    """

    channel: str
    account: str
    enabled: bool
    listening: bool
    reason: str = ""
    state: str = ""
    waiting: int = 0
    heard_at: str | None = None


class ContactRow(Wire, frozen=True):
    """A person who wrote without being listed; the name is what the service shows, and proves nothing."""

    code: str
    channel: str
    address: str
    name: str
    state: Literal["waiting", "approved", "rejected"]
    asked_at: Time
    decided_by: str | None = None


class ChannelList(Wire, frozen=True):
    """Accounts, and the people who asked for access through them."""

    channels: list[ChannelRow]
    contacts: list[ContactRow]


class OfAccount(Params, frozen=True, kw_only=True):
    """An account of a channel; without a name its first one."""

    channel: Name
    account: Name | None = None


class AccountChecked(Wire, frozen=True):
    """The account as the service knows it; `problem` says why its credentials do not work."""

    name: str = ""
    address: str = ""
    problem: str = ""


class DecideContact(Params, frozen=True, kw_only=True):
    """The code of a person who asked for access."""

    code: Annotated[str, Meta(min_length=1, max_length=40)]
    approve: bool


LOGS_TAIL = Method("logs.tail", Scope.ADMIN, TailLog, LogLines, "Return the newest records of the log.")
DOCTOR = Method("doctor", Scope.ADMIN, RunDoctor, DoctorReport, "Check the home and report problems.", True)
SECURITY_AUDIT = Method("security.audit", Scope.ADMIN, AuditRisks, RiskReport, "Report risky settings and files.", True)
SECURITY_MATRIX = Method(
    "security.matrix", Scope.ADMIN, OfAgent, Matrix, "List what each kind of principal may do, and what decides it."
)
PLUGINS_LIST = Method("plugins.list", Scope.ADMIN, Nothing, PluginList, "List the plugins that were found.")
MCP_LIST = Method("mcp.list", Scope.ADMIN, Nothing, McpServerList, "List the configured MCP servers.")
CHANNELS_LIST = Method("channels.list", Scope.ADMIN, Nothing, ChannelList, "List the accounts of channels.")

CHANNELS_CHECK = Method(
    "channels.check", Scope.ADMIN, OfAccount, AccountChecked, "Check the credentials of an account with its service."
)
CHANNELS_DECIDE = Method(
    "channels.decide", Scope.ADMIN, DecideContact, Done, "Approve or reject a person who asked for access.", True
)
MCP_TEST = Method("mcp.test", Scope.ADMIN, OfServer, McpTrial, "Connect to an MCP server and list its tools.", True)
TOOLS_LIST = Method("tools.list", Scope.READ, OfAgent, ToolList, "List all tools, and why an agent has them or not.")

METHODS = (
    *(LOGS_TAIL, DOCTOR, SECURITY_AUDIT, SECURITY_MATRIX, PLUGINS_LIST, MCP_LIST, MCP_TEST, TOOLS_LIST),
    *(CHANNELS_LIST, CHANNELS_CHECK, CHANNELS_DECIDE),
)
