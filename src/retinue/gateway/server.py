"""Running a gateway: one instance per home, a port, signals, and an orderly end."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import anyio
import uvicorn

from retinue.core.background import run_logged
from retinue.core.clock import random_id
from retinue.core.errors import RetinueError
from retinue.gateway.app import make_app
from retinue.gateway.border import Border
from retinue.gateway.gate import Gate
from retinue.gateway.gateway import Gateway
from retinue.gateway.hub import Hub
from retinue.gateway.listening import address_of, choose_host, listen
from retinue.gateway.pairing import PairingBook
from retinue.gateway.protocols import IDLE_SECONDS, HttpProtocol, SocketProtocol
from retinue.gateway.questions import ask_connected
from retinue.gateway.registry import load_methods
from retinue.gateway.reload import Reloader
from retinue.gateway.socket import Sockets
from retinue.gateway.tokens import TokenBook
from retinue.runtime.automation.boot import boot_agents
from retinue.runtime.automation.heartbeats import make_heart
from retinue.runtime.automation.hook_folders import is_hook_on, load_hook_folders
from retinue.runtime.automation.jobs import make_job_runner, put_away_runs
from retinue.runtime.automation.webhooks import WebhookReceiver
from retinue.runtime.channels.delivery import DeliveryService
from retinue.runtime.channels.typing import TypingIndicator
from retinue.runtime.home import Home
from retinue.runtime.open import attach_gateway, open_runtime
from retinue.runtime.services import GatewayControl
from retinue.runtime.subagents.runner import open_subagents
from retinue.storage.instance import InstanceFacts, InstanceLock
from retinue.wire.events import Shutdown
from retinue.wire.protocol import GATEWAY_STREAM, MOST_FRAME_BYTES, TICK_SECONDS, CloseCode

log = logging.getLogger(__name__)

WATCH_SECONDS = 0.4
DRAIN_SECONDS = 20.0
CLOSE_SECONDS = 2
TIDY_SECONDS = 6 * 3600.0
KEPT_DAYS = 30
"""How long the inbox remembers messages that were answered."""


class _Server(uvicorn.Server):
    """A server that leaves signals to us, and sleeps until it is told to end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = anyio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._told.set()

    async def main_loop(self) -> None:
        # the tick with the number 0 renews the date that answers carry
        while not await self.on_tick(0):
            with anyio.move_on_after(1):
                await self._told.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Ending:
    """How the gateway is told to end, and what comes after."""

    asked: anyio.Event = field(default_factory=anyio.Event)
    reason: str = ""
    restart: bool = False
    at_once: bool = False

    def ask(self, reason: str, *, restart: bool = False) -> None:
        if self.asked.is_set():
            self.at_once = True
        self.reason, self.restart = self.reason or reason, restart
        self.asked.set()


async def run_gateway(home: Home, port: int | None = None, ended: Ending | None = None) -> Ending:
    """Serve until told to end; returns how that was. Raises `AlreadyRunning` where another gateway has the home."""
    ending = ended or Ending()
    settings = home.config.gateway
    host = choose_host(settings)
    lock = InstanceLock(home.paths)
    try:
        opened = listen(host, settings.port if port is None else port)
        async with open_gateway(home, ending) as gateway:
            gateway.address = address_of(opened)
            await _serve(gateway, opened, lock, ending)
    finally:
        lock.release()
    return ending


@asynccontextmanager
async def open_gateway(home: Home, ending: Ending) -> AsyncIterator[Gateway]:
    """A gateway with everything behind it, but without a port."""
    async with open_runtime(home) as runtime:
        book = TokenBook(runtime.services.database, home.clock)
        book.ensure_local(home.paths)
        requests = PairingBook(runtime.services.database, book, home.clock)
        requests.forget_all()
        gate = Gate(home.config.gateway, book, requests, runtime.shared.secrets, home.clock)
        gateway = Gateway(runtime, gate, Hub(random_id()), home.clock.now())
        async with anyio.create_task_group() as tasks:
            gateway.courier, gateway.typist = DeliveryService(runtime), TypingIndicator(runtime, tasks)
            tasks.start_soon(gateway.courier.run)
            gateway.reloader = Reloader(gateway, tasks, partial(ending.ask, restart=True))
            attach_gateway(runtime, GatewayControl(gateway.reloader.apply_for_agent, partial(ending.ask, restart=True)))
            ask = ask_connected(gateway.somebody_may_decide)
            unsubscribe = runtime.shared.permissions.approvals.subscribe(gateway.tell_of_question)
            async with (
                runtime.dispatcher.serving(gateway.publish_turn, ask) as dispatcher,
                open_subagents(dispatcher) as spawner,
            ):
                gateway.spawner = spawner
                gateway.jobs, gateway.heart = make_job_runner(runtime, dispatcher), make_heart(runtime, dispatcher)
                gateway.hooks = WebhookReceiver(runtime, dispatcher, spawner.tasks)
                yield gateway
            unsubscribe()
            tasks.cancel_scope.cancel()


async def _serve(gateway: Gateway, opened: socket.socket, lock: InstanceLock, ending: Ending) -> None:
    entries = load_methods()
    app = Border(gateway, make_app(gateway, entries), Sockets(gateway, entries))
    config = uvicorn.Config(
        app,
        http=HttpProtocol,
        ws=SocketProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # whose word counts is decided in `visitors`, and not by the server
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        ws_max_size=MOST_FRAME_BYTES,
        ws_ping_interval=TICK_SECONDS,
        ws_ping_timeout=TICK_SECONDS,
        ws_per_message_deflate=False,
    )
    server = _Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_attend_signals, gateway, ending)
        served = anyio.Event()
        tasks.start_soon(_serve_until_told, server, opened, served)
        while not server.started:  # noqa: ASYNC110 - the server sets no event
            await anyio.sleep(0.002)
        left = gateway.runtime.dispatcher.resume()
        gateway.hooks.adopt()
        gateway.spawner.adopt()
        gateway.ready = True
        lock.write(InstanceFacts(os.getpid(), gateway.address, gateway.started_at.isoformat()))
        log.info("the gateway listens on %s; %d sessions were left with messages", gateway.address, left)
        tasks.start_soon(_keep_watch, gateway)
        tasks.start_soon(_tidy, gateway)
        if gateway.runtime.home.config.cron.enabled:
            tasks.start_soon(gateway.jobs.serve)
        tasks.start_soon(gateway.heart.serve)
        tasks.start_soon(load_hook_folders(gateway.runtime.home).tell, "gateway:startup")
        if is_hook_on(gateway.runtime.home, "boot-md"):
            tasks.start_soon(run_logged, "BOOT.md", boot_agents, gateway.runtime, gateway.runtime.dispatcher)
        await ending.asked.wait()
        await _drain(gateway, ending)
        server.end()
        with anyio.move_on_after(CLOSE_SECONDS * 2):
            await served.wait()
        tasks.cancel_scope.cancel()


async def _serve_until_told(server: _Server, opened: socket.socket, served: anyio.Event) -> None:
    try:
        await server.serve(sockets=[opened])
    finally:
        opened.close()
        served.set()


async def _drain(gateway: Gateway, ending: Ending) -> None:
    """Accept nothing more, let what runs come to its end, and leave the rest to the next start."""
    gateway.draining = True
    log.info("the gateway ends: %s", ending.reason)
    gateway.hub.publish(GATEWAY_STREAM, "shutdown", Shutdown(reason=ending.reason))
    with anyio.move_on_after(DRAIN_SECONDS) as patience:
        async with anyio.create_task_group() as tasks:

            async def watch_impatience() -> None:
                while not ending.at_once:  # noqa: ASYNC110 - a second signal sets it
                    await anyio.sleep(0.05)
                patience.cancel()

            tasks.start_soon(watch_impatience)
            await gateway.runtime.dispatcher.drain(DRAIN_SECONDS)
            tasks.cancel_scope.cancel()
    folders = load_hook_folders(gateway.runtime.home)
    if ending.restart:
        await folders.tell("gateway:pre-restart", reason=ending.reason)
    await folders.tell("gateway:shutdown", reason=ending.reason)
    for connection in tuple(gateway.connections.values()):
        connection.close(CloseCode.RESTART if ending.restart else CloseCode.GOING_AWAY, "the gateway ends")
    if gateway.connections:
        await anyio.sleep(0.05)


async def _attend_signals(gateway: Gateway, ending: Ending) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for received in signals:
            if received is signal.SIGHUP:
                await gateway.reloader.apply()
            else:
                ending.ask(f"it received {received.name}")


async def _keep_watch(gateway: Gateway) -> None:
    """Throw out whose token was revoked, and notice a changed configuration."""
    while True:
        await anyio.sleep(WATCH_SECONDS)
        try:
            if gateway.connections:
                dead = gateway.gate.book.dead()
                for connection in tuple(gateway.connections.values()):
                    if connection.principal.token_id in dead:
                        connection.close(CloseCode.REVOKED, "the token was revoked")
            await gateway.reloader.notice_changes()
        except RetinueError as error:
            log.warning("the watch missed a round: %s", error)


async def _tidy(gateway: Gateway) -> None:
    """Keep sessions and the inbox in order, now and then."""
    while True:
        await anyio.sleep(TIDY_SECONDS if gateway.meters.turns_started else IDLE_SECONDS)
        runtime = gateway.runtime
        try:
            for agent in runtime.home.config.agents.ids:
                runtime.tidy(agent)
            gateway.spawner.archive()
            put_away_runs(runtime, gateway.jobs.book)
            runtime.services.inbox.prune(runtime.home.clock.now() - timedelta(days=KEPT_DAYS))
            runtime.services.outbox.prune(runtime.home.clock.now() - timedelta(days=KEPT_DAYS))
        except RetinueError as error:
            log.warning("tidying failed: %s", error)
        await anyio.sleep(TIDY_SECONDS)
