"""Run a gateway: one instance per home, its port, signals, and an orderly shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import uvicorn
from anyio.abc import TaskGroup

from retinue.automation.clock_jumps import ClockJumpLog
from retinue.core.clock import ClockWatch, random_id
from retinue.core.errors import RetinueError, run_logged
from retinue.gateway.app import RequestGuard, make_app
from retinue.gateway.auth.authenticator import Authenticator
from retinue.gateway.auth.pairing import PairingStore
from retinue.gateway.auth.request_source import address_for_others
from retinue.gateway.auth.tokens import TokenStore
from retinue.gateway.connection import Connections
from retinue.gateway.event_hub import EventHub
from retinue.gateway.gateway import BackgroundWork, Gateway, GatewayState, TurnPublisher
from retinue.gateway.methods.table import gateway_methods
from retinue.gateway.plugins import run_plugins
from retinue.gateway.reload import Reloader
from retinue.gateway.shutdown import DRAIN_SECONDS, ShutdownRequest, handling_signals
from retinue.gateway.transport import (
    IDLE_SECONDS,
    ConnectionAcceptor,
    HttpProtocol,
    SocketProtocol,
    address_of,
    choose_host,
    listen,
)
from retinue.gateway.websocket import SocketEndpoint
from retinue.runtime.agents.agent import GatewayControl
from retinue.runtime.automation.backups import make_backups
from retinue.runtime.automation.bundled_hooks import boot_agents
from retinue.runtime.automation.heartbeats import make_heartbeats
from retinue.runtime.automation.hooks import is_hook_on, load_hook_folders
from retinue.runtime.automation.jobs import archive_runs, make_job_runner
from retinue.runtime.automation.webhooks import WebhookReceiver
from retinue.runtime.channels.approval_prompts import ApprovalPrompts
from retinue.runtime.channels.delivery import DeliveryService
from retinue.runtime.channels.listeners import ChannelListeners
from retinue.runtime.channels.open_channels import OpenChannels
from retinue.runtime.channels.turn_display import AnswerPreviews, TypingIndicator
from retinue.runtime.commands.download import ModelDownload
from retinue.runtime.home import Home
from retinue.runtime.open import Runtime, attach_gateway, open_runtime
from retinue.runtime.subagents.runner import open_subagents
from retinue.storage.files import DiskFull, InputOutputError, ReadOnly
from retinue.storage.postgres import Role
from retinue.storage.process_locks import InstanceFacts, InstanceLock
from retinue.wire.frames import Shutdown
from retinue.wire.protocol import GATEWAY_STREAM, MAX_READ_FRAME_BYTES, TICK_SECONDS, CloseCode

if TYPE_CHECKING:
    from retinue.gateway.members.open import Members

log = logging.getLogger(__name__)

WATCH_SECONDS = 0.4
CLOSE_SECONDS = 2
TIDY_SECONDS = 6 * 3600.0
COPY_CHECK_SECONDS = 60.0
RECOVERY_SECONDS = 2.0
"""How often a read-only gateway checks whether the disk can be written again."""
KEPT_DAYS = 30
"""How long the inbox keeps answered messages."""


class _Server(uvicorn.Server):
    """A server that does not handle signals, and sleeps until `end` is called."""

    def __init__(self, config: uvicorn.Config, header_seconds: float) -> None:
        super().__init__(config)
        self._header_seconds = header_seconds
        self._ended = anyio.Event()
        self._acceptors: list[ConnectionAcceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        def make_protocol() -> HttpProtocol:
            return HttpProtocol(self.config, self.server_state, self.lifespan.state, self._header_seconds)

        await self.lifespan.startup()
        self.servers = []
        self._acceptors = [ConnectionAcceptor(each, make_protocol) for each in sockets or ()]
        for acceptor in self._acceptors:
            acceptor.start()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown(sockets)

    def end(self) -> None:
        self.should_exit = True
        self._ended.set()

    async def main_loop(self) -> None:
        # a tick with the number 0 updates the Date header of responses
        while not await self.on_tick(0):
            with anyio.move_on_after(1):
                await self._ended.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def run_gateway(
    home: Home, port: int | None = None, shutdown: ShutdownRequest | None = None, *, role: Role = "all"
) -> ShutdownRequest:
    """Serve until a shutdown is requested; returns that request. Raises `AlreadyRunning` if the home has a gateway."""
    ending = shutdown or ShutdownRequest()
    settings = home.config.gateway
    host = choose_host(settings)
    lock = InstanceLock(home.paths)
    try:
        with listen(host, settings.port if port is None else port) as opened:
            async with open_gateway(home, ending) as gateway:
                gateway.state.address, gateway.state.role = address_of(opened), role
                gateway.runtime.dispatcher.runs_turns = role != "front"
                hangup = asyncio.Event()
                with handling_signals(ending, hangup.set):
                    await _serve(gateway, opened, lock, ending, hangup)
    finally:
        lock.release()
    return ending


@asynccontextmanager
async def open_gateway(home: Home, ending: ShutdownRequest) -> AsyncIterator[Gateway]:
    """A gateway with its runtime, but without a port."""
    restart = partial(ending.request, restart=True)
    async with open_runtime(home, degrades=True) as runtime, anyio.create_task_group() as tasks:
        auth = _make_authenticator(runtime)
        hub, connections, state = EventHub(random_id()), Connections(), GatewayState(home.clock.now())
        sessions = runtime.sessions
        channels = OpenChannels(sessions)
        delivery = DeliveryService(sessions, channels)
        displays = TypingIndicator(sessions, channels, tasks), AnswerPreviews(sessions, channels, delivery, tasks)
        reloader = Reloader(runtime, auth, connections, hub, tasks, restart)
        if home.team_storage is None:
            tasks.start_soon(_run_when_writable, runtime, delivery.run)
        attach_gateway(runtime, GatewayControl(reloader.apply_for_agent, restart))
        turns = TurnPublisher(runtime, hub, state.metrics, delivery, displays)
        prompts = ApprovalPrompts(sessions, connections.ask, connections.can_approve, delivery.wake)
        async with (
            runtime.dispatcher.serving(turns.publish, prompts.ask) as dispatcher,
            open_subagents(dispatcher) as subagents,
            _open_members(runtime, auth, connections, tasks) as members,
        ):
            jobs, heartbeats = make_job_runner(sessions, dispatcher), make_heartbeats(sessions, dispatcher)
            hooks = WebhookReceiver(sessions, dispatcher, subagents.tasks)
            clock_jumps = ClockJumpLog(runtime.services.database, home.clock)
            listeners = ChannelListeners(dispatcher, channels, prompts, delivery.wake)
            background = BackgroundWork(
                jobs, heartbeats, hooks, subagents, delivery, clock_jumps, ModelDownload(tasks), listeners
            )
            gateway = Gateway(runtime, auth, hub, connections, state, reloader, background, members)
            unsubscribe = runtime.services.approvals.subscribe(gateway.publish_approval)
            yield gateway
        unsubscribe()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_SECONDS):
            await channels.close()


@asynccontextmanager
async def _open_members(
    runtime: Runtime, auth: Authenticator, connections: Connections, tasks: TaskGroup
) -> AsyncIterator[Members | None]:
    """The members of the team that the home serves; None without a team, for which nothing is imported."""
    if runtime.home.config.teams.team is None:
        yield None
        return
    from retinue.teams import explained_imports

    with explained_imports():
        from retinue.gateway.members.open import open_members
    async with open_members(runtime, auth, connections, tasks) as members:
        yield members


def _make_authenticator(runtime: Runtime) -> Authenticator:
    home, database = runtime.home, runtime.services.database
    tokens = TokenStore(database, home.clock)
    pairing = PairingStore(database, tokens, home.clock)
    try:
        if home.team_storage is None:
            tokens.ensure_local(home.paths)
            pairing.delete_all()
        else:
            tokens.ensure_local(home.paths, f"{socket.gethostname()}:{home.paths.path}")
    except (DiskFull, InputOutputError, ReadOnly) as error:
        database.degrade(error)
    return Authenticator(home.config.gateway, tokens, pairing, runtime.shared.secrets, home.clock)


async def _serve(
    gateway: Gateway, opened: socket.socket, lock: InstanceLock, ending: ShutdownRequest, hangup: asyncio.Event
) -> None:
    methods = gateway_methods(gateway)
    app = RequestGuard(gateway, make_app(gateway), SocketEndpoint(gateway, methods))
    config = uvicorn.Config(
        app,
        http=HttpProtocol,
        ws=SocketProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # `auth.client_address` decides which proxies are trusted
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        ws_max_size=MAX_READ_FRAME_BYTES,
        ws_ping_interval=TICK_SECONDS,
        ws_ping_timeout=TICK_SECONDS,
        ws_per_message_deflate=False,
    )
    server = _Server(config, gateway.auth.settings.http.header_timeout_ms / 1000)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_reload_on_hangup, gateway, hangup)
        served = anyio.Event()
        tasks.start_soon(_serve_until_ended, server, opened, served)
        while not server.started:  # noqa: ASYNC110 - the server sets no event
            await anyio.sleep(0.002)
        if gateway.runtime.read_only_because is None:
            _begin_work(gateway, tasks)
        else:
            tasks.start_soon(_recover, gateway, tasks)
        gateway.state.ready = True
        lock.write(InstanceFacts(os.getpid(), gateway.state.address, gateway.state.started_at.isoformat()))
        log.info("the gateway listens on %s", gateway.state.address)
        if elsewhere := address_for_others(gateway.auth.settings, gateway.state.address):
            log.info("other devices reach the gateway at %s", elsewhere)
        tasks.start_soon(_watch, gateway)
        await ending.requested.wait()
        await _drain(gateway, ending)
        server.end()
        with anyio.move_on_after(CLOSE_SECONDS * 2):
            await served.wait()
        tasks.cancel_scope.cancel()


def _begin_work(gateway: Gateway, tasks: TaskGroup) -> None:
    """Answer the messages that are left from before, and start jobs, heartbeats, clean-up and hooks."""
    team = gateway.runtime.home.team_storage
    if team is None:
        log.info("%d sessions have unanswered messages", gateway.runtime.dispatcher.resume())
        _begin_automation(gateway, tasks)
        return
    from retinue.gateway.cluster import ClusterMember  # most homes have no team

    member = ClusterMember(gateway, team, gateway.state.role)
    gateway.state.find_obstacle = member.readiness.find_obstacle
    tasks.start_soon(member.run, _begin_automation)


def _begin_automation(gateway: Gateway, tasks: TaskGroup) -> None:
    """Start what one gateway of a team does for all of them."""
    runtime, background = gateway.runtime, gateway.background
    background.hooks.adopt()
    background.subagents.adopt()
    if runtime.home.team_storage is not None:
        tasks.start_soon(background.delivery.run)
    tasks.start_soon(_clean_up, gateway)
    tasks.start_soon(_copy_databases, gateway)
    tasks.start_soon(make_backups, lambda: gateway.runtime.home)
    if runtime.home.config.cron.enabled:
        tasks.start_soon(background.jobs.serve)
    tasks.start_soon(background.heartbeats.serve)
    tasks.start_soon(run_plugins, runtime)
    tasks.start_soon(background.listeners.run)
    tasks.start_soon(load_hook_folders(runtime.home).run_hooks, "gateway:startup")
    if is_hook_on(runtime.home, "boot-md"):
        tasks.start_soon(run_logged, "BOOT.md", boot_agents, runtime.sessions, runtime.dispatcher)


async def _recover(gateway: Gateway, tasks: TaskGroup) -> None:
    """Wait until the disk can be written, then do what a start on a writable disk does."""
    runtime, auth = gateway.runtime, gateway.auth
    log.error("the gateway is read-only: %s", runtime.read_only_because)
    while True:
        await anyio.sleep(RECOVERY_SECONDS)
        if not await anyio.to_thread.run_sync(runtime.recover):
            continue
        try:
            auth.tokens.ensure_local(runtime.home.paths)
            auth.pairing.delete_all()
            runtime.services.approvals.sweep()
        except RetinueError as error:
            log.warning("the gateway stays read-only: %s", error)
            continue
        log.info("the gateway can store data again")
        _begin_work(gateway, tasks)
        return


async def _run_when_writable(runtime: Runtime, act: Callable[[], Awaitable[None]]) -> None:
    while runtime.read_only_because is not None:  # noqa: ASYNC110 - set by a thread
        await anyio.sleep(RECOVERY_SECONDS)
    await act()


async def _serve_until_ended(server: _Server, opened: socket.socket, served: anyio.Event) -> None:
    try:
        await server.serve(sockets=[opened])
    finally:
        opened.close()
        served.set()


async def _drain(gateway: Gateway, ending: ShutdownRequest) -> None:
    """Accept no more messages, wait for running turns, and leave the other messages to the next start."""
    gateway.state.draining = True
    log.info("the gateway is shutting down: %s", ending.reason)
    gateway.hub.publish(GATEWAY_STREAM, "shutdown", Shutdown(reason=ending.reason))
    with anyio.move_on_after(DRAIN_SECONDS) as patience:
        async with anyio.create_task_group() as tasks:

            async def watch_second_signal() -> None:
                while not ending.at_once:  # noqa: ASYNC110 - a second signal sets it
                    await anyio.sleep(0.05)
                patience.cancel()

            tasks.start_soon(watch_second_signal)
            await run_logged("waiting for running turns", gateway.runtime.dispatcher.drain, DRAIN_SECONDS)
            tasks.cancel_scope.cancel()
    await run_logged("running the hooks of the shutdown", _run_shutdown_hooks, gateway, ending)
    for connection in gateway.connections:
        connection.close(CloseCode.RESTART if ending.restart else CloseCode.GOING_AWAY, "the gateway is shutting down")
    if gateway.connections:
        await anyio.sleep(0.05)


async def _run_shutdown_hooks(gateway: Gateway, ending: ShutdownRequest) -> None:
    folders = load_hook_folders(gateway.runtime.home)
    if ending.restart:
        await folders.run_hooks("gateway:pre-restart", reason=ending.reason)
    await folders.run_hooks("gateway:shutdown", reason=ending.reason)


async def _reload_on_hangup(gateway: Gateway, hangup: asyncio.Event) -> None:
    while True:
        await hangup.wait()
        hangup.clear()
        await gateway.reloader.apply()


async def _watch(gateway: Gateway) -> None:
    """Close connections whose token is invalid, apply a changed configuration, and record changes of the clock."""
    check_clock = gateway.background.clock_jumps.check_start
    while True:
        try:
            check_clock()
            check_clock = gateway.background.clock_jumps.check
            if gateway.connections.is_used:
                _close_revoked(gateway)
            await gateway.reloader.apply_if_changed()
        except RetinueError as error:
            log.warning("tokens, clock and configuration could not be checked: %s", error)
        await anyio.sleep(WATCH_SECONDS)


def _close_revoked(gateway: Gateway) -> None:
    invalid = gateway.auth.tokens.invalid_ids()
    gateway.connections.close_if(lambda principal: principal.token_id in invalid, "the token was revoked")


async def _copy_databases(gateway: Gateway) -> None:
    """Keep verified copies of the databases, from which unreadable rows are restored after damage."""
    while True:
        await anyio.sleep(COPY_CHECK_SECONDS)
        try:
            await gateway.runtime.copy_databases()
        except RetinueError as error:
            log.warning("the database could not be copied: %s", error)


async def _clean_up(gateway: Gateway) -> None:
    """Clean up sessions, the inbox and the outbox periodically.

    If the clock was set, the next time is soon enough: a clock that is ahead makes everything look old.
    """
    runtime = gateway.runtime
    watch = ClockWatch(runtime.home.clock)
    while True:
        await anyio.sleep(TIDY_SECONDS if gateway.state.metrics.turns_started else IDLE_SECONDS)
        try:
            if watch.check() is None:
                for agent in runtime.home.config.agents.ids:
                    runtime.tidy(agent)
                gateway.background.subagents.archive()
                archive_runs(runtime.sessions, gateway.background.jobs.store)
                runtime.services.inbox.prune(runtime.home.clock.now() - timedelta(days=KEPT_DAYS))
                runtime.services.outbox.prune(runtime.home.clock.now() - timedelta(days=KEPT_DAYS))
        except RetinueError as error:
            log.warning("the clean-up failed: %s", error)
        await anyio.sleep(TIDY_SECONDS)
