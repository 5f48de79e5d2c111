"""How a server is reached: its program in a sandbox, or its address through the checked HTTP transport.

It needs the SDK, so it is imported only when a connection is made.
"""

from __future__ import annotations

import os
import shutil
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import ToolFailed
from retinue.core.keys import AgentId, SessionKey
from retinue.sandbox.confinement import Confinement, Network, SandboxUnavailable
from retinue.sandbox.sandboxes import BackedSandbox, Sandboxes
from retinue.security.checked_transport import CheckedTransport
from retinue.security.network import OPERATOR
from retinue.security.secrets import Secrets
from retinue.toolkit.mcp.catalog import starting_folder
from retinue.toolkit.mcp.pipes import MAX_MESSAGE_BYTES, PrintedLines, open_pipes
from retinue.toolkit.mcp.settings import McpServerSettings
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.environment import base_environment
from retinue.toolkit.processes.launch import Launch
from retinue.tools.shell.analysis import Joiner, PipelineStep
from retinue.tools.shell.lexer import Redirection

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

NO_LIMIT_SECONDS = 10 * 365 * 86_400.0
SPARE_SECONDS = 30.0
DOWNLOADERS = frozenset({"npx", "bunx", "pnpx", "uvx", "pipx"})
"""Programs that download what they start."""


class TransportParts(Struct, frozen=True):
    """What connections are made with."""

    commands: CommandTable
    secrets: Secrets
    environment: Mapping[str, str]
    sandboxes: Sandboxes | None
    auth: Mapping[str, httpx2.Auth] = {}
    """How to sign in to servers, by their names."""


@asynccontextmanager
async def open_program(
    server: str, settings: McpServerSettings, agent: AgentId, parts: TransportParts, printed: PrintedLines
) -> AsyncGenerator[TransportStreams, None]:
    """Start the program of a server and exchange messages with it."""
    program = find_program(server, settings, parts.environment)
    session = SessionKey.parse(f"agent:{agent}:mcp-{server.lower()}")
    for path in settings.write_paths:
        Path(path).expanduser().mkdir(0o700, parents=True, exist_ok=True)
    enclosure = _enclose(server, settings, program, session, parts.sandboxes)
    workspace = enclosure.confinement.folder if enclosure else None
    if workspace is None and parts.sandboxes is not None:
        workspace = parts.sandboxes.workspace_of(agent)
    chosen = starting_folder(settings)
    folder = Path(chosen).expanduser() if chosen else workspace or Path.cwd()
    if not chosen:
        folder.mkdir(0o700, parents=True, exist_ok=True)  # a new home has no workspace yet
    variables = {name: parts.secrets.resolve(value) for name, value in settings.env.items()}
    path = os.pathsep.join((str(program.parent), parts.environment.get("PATH", "")))
    redirections = () if printed.errors else ((Redirection(2, None),),)
    launch = Launch(
        agent=agent,
        session=session,
        text=f"the MCP server {server}",
        steps=(PipelineStep(Joiner.ALWAYS, ((str(program), *settings.args),), redirections),),
        environment={**base_environment(parts.environment), "PATH": path, **variables},
        timeout=NO_LIMIT_SECONDS,
        takes_input=True,
        enclosure=enclosure,
    )
    if enclosure is not None and parts.sandboxes is not None:
        parts.sandboxes.open(enclosure.confinement, session)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ToolFailed(f"The MCP server {server} cannot start in {folder}: {error.strerror}.") from error
    try:
        process = await parts.commands.open_process(launch, descriptor)
    finally:
        os.close(descriptor)
    async with open_pipes(process, printed) as streams:
        yield streams


def find_program(server: str, settings: McpServerSettings, environment: Mapping[str, str]) -> Path:
    """Return the absolute path of a server's program; raise `ToolFailed` if there is none."""
    wanted = os.path.expanduser(settings.command or "")  # noqa: PTH111 - a text, which may have no slash
    found = shutil.which(wanted, path=environment.get("PATH"))
    if found is None:
        raise ToolFailed(
            f"The program `{wanted}` of the MCP server {server} is not installed. Install it, or set "
            f"`mcp.servers.{server}.command` to its absolute path."
        )
    # A sandbox shows the folder of the program, but not what a path with `..` passes through.
    plain = Path(os.path.normpath(Path(found).absolute()))
    return plain if plain.exists() else Path(found).resolve()


def explain_download(settings: McpServerSettings, parts: TransportParts) -> str:
    """Return what to do if the program downloads what it starts, which a sandbox without a network prevents."""
    launcher = Path(settings.command or "").name
    if launcher not in DOWNLOADERS or parts.sandboxes is None or settings.network == "proxy":
        return ""
    return (
        f" `{launcher}` downloads the server when it starts, which a sandbox without a network prevents. Install the "
        "server and name its own program as the command, or set `network` of the server to `proxy`."
    )


def _enclose(
    server: str, settings: McpServerSettings, program: Path, session: SessionKey, sandboxes: Sandboxes | None
) -> BackedSandbox | None:
    """Return the sandbox of a program, as a command of the agent would get; None if commands get none."""
    if sandboxes is None or not sandboxes.decide(session).confined:
        return None
    named = [Path(argument) for argument in settings.args if argument.startswith("/")]
    projects = [folder for path in named if (folder := _project(path)) is not None]
    shown = (*_installation(program), *named, *projects, *(Path(path).expanduser() for path in settings.read_paths))
    try:
        seen = tuple(path for path in shown if path.exists())
        changed = tuple(Path(path).expanduser() for path in settings.write_paths)
        confinement = sandboxes.confinement_of(session, seen, write_paths=changed, apart=True)
        if settings.network is not None:
            confinement = replace(confinement, network=Network(settings.network))
        return sandboxes.with_backend(confinement, session, _starting_place(settings, confinement))
    except SandboxUnavailable as error:
        if sandboxes.decide(session).required:
            raise ToolFailed(f"The MCP server {server} is not started without a sandbox. {error}") from error
        return None


def _starting_place(settings: McpServerSettings, confinement: Confinement) -> str:
    """Return the folder that a program starts in: the configured one if the sandbox shows it, else the usual one."""
    chosen = starting_folder(settings)
    if not chosen:
        return "."
    folder = Path(chosen).expanduser().resolve()
    if folder.is_relative_to(confinement.folder):
        return str(folder.relative_to(confinement.folder))
    seen = (*confinement.shown, *confinement.write_paths)
    return str(folder) if any(folder.is_relative_to(path) for path in seen) else "."


def _installation(program: Path) -> tuple[Path, ...]:
    """Return the folders that a program is installed in, by its path and by its target.

    A program outside of a `bin` folder, such as one in `node_modules/.bin`, needs the modules of its project.
    """
    folders = []
    for path in (program, program.resolve()):
        is_in_bin = path.parent.name in ("bin", "sbin", "Scripts")
        folder = path.parent.parent if is_in_bin else _project(path) or path.parent
        if not folder.is_relative_to("/usr") and folder != Path("/"):
            folders.append(folder)
    return tuple(dict.fromkeys(folders))


def _project(script: Path) -> Path | None:
    """Return the folder with the modules that a script imports: its `node_modules`, or the project that it is in."""
    if not script.is_file():
        return None
    for folder in reversed(script.parents):
        if folder.name == "node_modules":
            return folder
    for folder in script.resolve().parents:
        if folder in (Path.home(), Path("/")):
            return None
        if any((folder / name).is_file() for name in ("package.json", "pyproject.toml")):
            return folder
    return None


class LimitedTransport(CheckedTransport):
    """Limits the bodies of responses that the SDK reads as a whole; it limits the events of streams itself."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the server compressed its answer, which may not be limited", request=request)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _LimitedStream(response.stream)
        return response


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.ReadError(f"the answer has more than {MAX_MESSAGE_BYTES // 2**20} MB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def open_address(
    server: str, settings: McpServerSettings, parts: TransportParts, *, sse: bool
) -> AsyncGenerator[TransportStreams, None]:
    """Connect to a server's address by streamable HTTP or SSE."""
    assert settings.url is not None
    headers = {name: parts.secrets.resolve(value) for name, value in settings.headers.items()}
    seconds = settings.request_timeout_ms / 1000
    # A call that takes too long ends by the session's limit; that of the transport would end the connection.
    timeout = httpx2.Timeout(seconds + SPARE_SECONDS, connect=settings.connection_timeout_ms / 1000)
    transport = LimitedTransport(OPERATOR, tls=_tls(server, settings))
    auth = parts.auth.get(server)
    if sse:

        def make_client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return httpx2.AsyncClient(transport=transport, headers=headers, timeout=timeout, auth=auth)

        async with sse_client(
            settings.url, headers, seconds, seconds, httpx_client_factory=make_client, auth=auth
        ) as streams:
            yield streams
        return
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers, timeout=timeout, auth=auth) as client,
        streamable_http_client(settings.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


def _tls(server: str, settings: McpServerSettings) -> ssl.SSLContext | None:
    if settings.ssl_verify and settings.client_cert is None:
        return None
    context = httpx2.create_ssl_context(trust_env=False)
    if not settings.ssl_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.client_cert is not None:
        try:
            context.load_cert_chain(settings.client_cert, settings.client_key)
        except (OSError, ssl.SSLError) as error:
            raise ToolFailed(f"The certificate of the MCP server {server} cannot be used: {error}.") from error
    return context
