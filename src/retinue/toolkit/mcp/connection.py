"""The connection of an agent to a server: opened by the first call, closed when idle, opened again after a failure.

A call is never repeated: it may have had an effect before the connection broke.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError, ToolFailed
from retinue.core.keys import AgentId
from retinue.security.untrusted_text import sanitise_line
from retinue.toolkit.mcp.catalog import (
    MAX_DESCRIPTION_CHARS,
    MAX_INSTRUCTIONS_CHARS,
    MAX_TOOLS,
    OfferedTool,
    ServerCatalog,
    digest_settings,
    find_fault,
)
from retinue.toolkit.mcp.settings import McpServerSettings

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import Transport
    from mcp_types import CallToolResult

    from retinue.toolkit.mcp.pipes import PrintedLines
    from retinue.toolkit.mcp.transports import TransportParts

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 300.0
MAX_PAGES = 50
MAX_REASON_CHARS = 400
END_SECONDS = 2.0
"""How long to wait for the reason why a connection ended."""


class SignInNeeded(ToolFailed):
    """A server refused a request until the owner signs in, or signs in with more rights. The request had no effect."""


class Target(Struct, frozen=True):
    """Which server is reached, for which agent."""

    server: str
    settings: McpServerSettings
    agent: AgentId


class OpenClient(Struct, frozen=True):
    """A client that is connected, and what its server offers."""

    client: Client
    catalog: ServerCatalog
    offered: Mapping[str, str]
    """The digests of the tools, by name."""


@asynccontextmanager
async def open_client(
    target: Target,
    parts: TransportParts,
    clock: Clock,
    printed: PrintedLines,
    on_change: Callable[[], None] = lambda: None,
) -> AsyncGenerator[OpenClient, None]:
    """Connect to a server and list what it offers. Raises `ToolFailed` with a reason for the model and the owner.

    `on_change` is called when the server says that its tools have changed.
    """
    from retinue.toolkit.mcp.transports import explain_download

    server, seconds = target.server, target.settings.connection_timeout_ms / 1000
    hint = explain_download(target.settings, parts)
    try:
        # The connection has scopes of its own, so the one with the time limit must enclose it to its end.
        with anyio.move_on_after(seconds) as limit:
            async with AsyncExitStack() as stack:
                client = await _connect(target, _transports(target, parts, printed), on_change, stack)
                opened = await list_offers(target, client, clock)
                limit.deadline = math.inf
                yield opened
    except ToolFailed:
        raise
    except Exception as error:  # border: the SDK raises what transports raise, also when it closes them
        raise _as_failure(target, error, hint) from error
    if limit.cancelled_caught:
        raise ToolFailed(f"The MCP server {server} did not answer within {seconds:g} s.{hint}")


async def _connect(
    target: Target, transports: Iterable[Transport], on_change: Callable[[], None], stack: AsyncExitStack
) -> Client:
    """Connect by the first transport that works; raise the error of the first one."""
    from mcp import Client
    from mcp_types import ToolListChangedNotification

    async def notice(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            on_change()

    failures: list[Exception] = []
    for transport in transports:
        seconds = target.settings.request_timeout_ms / 1000
        client = Client(transport, read_timeout_seconds=seconds, message_handler=notice, cache=None)
        try:
            connected = await stack.enter_async_context(client)
            # The SDK checks results by schemas of the server, with patterns that can take hours. They are text from
            # outside, whatever their form.
            connected.session.validate_tool_result = _accept_result  # type: ignore[method-assign]
            return connected
        except Exception as error:  # noqa: BLE001 - border: the SDK raises what transports raise
            failures.append(error)
    raise failures[0]


async def _accept_result(name: str, result: CallToolResult) -> None:
    """Accept every result of a tool."""


def _transports(target: Target, parts: TransportParts, printed: PrintedLines) -> list[Transport]:
    """Return the transports to try, in order."""
    from retinue.toolkit.mcp.transports import open_address, open_program

    server, settings = target.server, target.settings
    if settings.command is not None:
        return [open_program(server, settings, target.agent, parts, printed)]
    kinds = {"sse": (True,), "http": (False,), "streamable-http": (False,)}.get(settings.transport or "", (False, True))
    return [open_address(server, settings, parts, sse=sse) for sse in kinds]


def _as_failure(target: Target, error: BaseException, hint: str = "") -> ToolFailed:
    """Return the reason why a server cannot be used; groups of tasks contain it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ToolFailed):
        return error
    return ToolFailed(f"The MCP server {target.server} cannot be used: {explain(error)}{hint}")


def explain(error: BaseException) -> str:
    """Return the text of an error as a sentence on one line."""
    text = " ".join(str(error)[:MAX_REASON_CHARS].split()) or type(error).__name__
    return text if text.endswith(".") else f"{text}."


async def list_offers(target: Target, client: Client, clock: Clock) -> OpenClient:
    """List the tools of a server; those that cannot be used are omitted with a reason."""
    capabilities = client.server_capabilities
    tools: dict[str, OfferedTool] = {}
    omitted: dict[str, str] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES if capabilities.tools else 0):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            fault = find_fault(tool.name, tool.input_schema)
            if fault is None and tool.name in tools:
                fault = "there are two tools of this name"
            if fault is None and len(tools) == MAX_TOOLS:
                fault = f"a server may have at most {MAX_TOOLS} tools"
            if fault is not None:
                omitted[tool.name[:256]] = fault
            else:
                description = sanitise_line((tool.description or tool.title or tool.name)[:MAX_DESCRIPTION_CHARS])
                tools[tool.name] = OfferedTool(tool.name, description, dict(tool.input_schema))
        cursor = page.next_cursor
        if cursor is None:
            break
    info = client.server_info
    catalog = ServerCatalog(
        settings=digest_settings(target.settings),
        listed_at=clock.now(),
        version=f"{info.name} {info.version}"[:200] if info else "",
        instructions=(client.instructions or "")[:MAX_INSTRUCTIONS_CHARS],
        tools=tuple(sorted(tools.values(), key=lambda tool: tool.name)),
        omitted=omitted,
        has_resources=capabilities.resources is not None,
        has_prompts=capabilities.prompts is not None,
    )
    return OpenClient(client, catalog, {tool.name: tool.digest for tool in catalog.tools})


class McpConnection:
    """The connection of an agent to a server. Calls open it; a task of its own holds it."""

    def __init__(
        self,
        target: Target,
        make_parts: Callable[[], TransportParts],
        clock: Clock,
        tasks: TaskGroup,
        on_listed: Callable[[str, ServerCatalog], None],
    ) -> None:
        self._target = target
        self._make_parts = make_parts
        self._clock = clock
        self._tasks = tasks
        self._on_listed = on_listed
        self._opening = anyio.Lock()
        self._open: OpenClient | None = None
        self._has_changed = False
        self._holder: anyio.CancelScope | None = None
        self._ended = anyio.Event()
        self._refusal: SignInNeeded | None = None
        self._calls = 0
        self._used_at = 0.0
        self._pause = 0.0
        self._closed_until = 0.0

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[OpenClient, None]:
        """Return the open client for one request; a failure of the connection closes it."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        opened = await self._ensure_open()
        self._calls += 1
        try:
            if self._has_changed:
                self._has_changed = False
                opened = self._open = await list_offers(self._target, opened.client, self._clock)
                self._on_listed(self._target.server, opened.catalog)
            yield opened
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                refusal = await self._find_refusal()
                if refusal is not None:
                    raise refusal from error
                self._fail(opened)
                raise ToolFailed(
                    f"The connection to the MCP server {self._target.server} broke during the call. It may have had an "
                    "effect; check before you repeat it."
                ) from error
            if error.code == REQUEST_TIMEOUT:
                raise ToolFailed(
                    f"The MCP server {self._target.server} did not answer in time. The call may still have an effect."
                ) from error
            raise ToolFailed(f"The MCP server {self._target.server} refused: {explain(error)}") from error
        except RetinueError:
            raise
        except (ValueError, RuntimeError) as error:  # the SDK raises both for answers that are not valid
            log.warning("the MCP server %s sent an invalid answer: %s", self._target.server, error)
            raise ToolFailed(
                f"The answer of the MCP server {self._target.server} does not follow the protocol. The call may have "
                "had an effect."
            ) from error
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            self._fail(opened)
            raise ToolFailed(f"The MCP server {self._target.server} failed: {explain(error)}") from error
        else:
            self._pause = 0.0
        finally:
            self._calls -= 1
            self._used_at = self._clock.monotonic()

    def close(self) -> None:
        """Close the connection; running calls fail."""
        if self._holder is not None:
            self._holder.cancel()

    async def _find_refusal(self) -> SignInNeeded | None:
        """Return the demand for a sign-in that ended the connection; None if something else ended it."""
        with anyio.move_on_after(END_SECONDS):
            await self._ended.wait()
        return self._refusal

    def _note_change(self) -> None:
        self._has_changed = True

    def _fail(self, opened: OpenClient) -> None:
        if self._open is opened:
            self._delay_next()
            self.close()

    def _delay_next(self) -> None:
        self._pause = min(max(FIRST_PAUSE_SECONDS, self._pause * 2), LONGEST_PAUSE_SECONDS)
        self._closed_until = self._clock.monotonic() + self._pause

    async def _ensure_open(self) -> OpenClient:
        async with self._opening:
            if self._open is not None and self._holder is not None and not self._holder.cancel_called:
                return self._open
            left = self._closed_until - self._clock.monotonic()
            if left > 0:
                raise ToolFailed(
                    f"The MCP server {self._target.server} failed. The next attempt is possible in {left:.0f} s."
                )
            opened: OpenClient | ToolFailed = await self._tasks.start(self._hold)
            if isinstance(opened, ToolFailed):
                self._delay_next()
                raise opened
            return opened

    async def _hold(self, *, task_status: anyio.abc.TaskStatus[OpenClient | ToolFailed]) -> None:
        """Hold the connection open until it is idle or closed. The SDK wants one task to open and close it."""
        from retinue.toolkit.mcp.pipes import PrintedLines

        started = False
        self._ended, self._refusal = anyio.Event(), None
        with anyio.CancelScope() as scope:
            try:
                parts, clock = self._make_parts(), self._clock
                async with open_client(self._target, parts, clock, PrintedLines(), self._note_change) as opened:
                    self._open, self._holder, self._used_at = opened, scope, self._clock.monotonic()
                    self._on_listed(self._target.server, opened.catalog)
                    task_status.started(opened)
                    started = True
                    await self._wait_until_idle()
            except Exception as error:  # noqa: BLE001 - border: the SDK raises what transports raise, also at the end
                failure = _as_failure(self._target, error)
                if not started:
                    task_status.started(failure)
                else:
                    self._refusal = failure if isinstance(failure, SignInNeeded) else None
                    log.warning("the connection to the MCP server %s ended: %s", self._target.server, failure)
            finally:
                if self._holder is scope:
                    self._open = self._holder = None
                self._ended.set()

    async def _wait_until_idle(self) -> None:
        limit = float(self._target.settings.idle_seconds)
        while True:
            left = limit if self._calls else self._used_at + limit - self._clock.monotonic()
            if left <= 0:
                return
            await anyio.sleep(left)
