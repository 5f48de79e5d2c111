"""A running Retinue: every part opened, and one way in for messages."""

from __future__ import annotations

import gc
import logging
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from retinue.context.engine import ContextEngine, DefaultEngine
from retinue.context.fallback import FallbackEngine
from retinue.core.api import Display, Greeting, Missed
from retinue.core.approval import Ask, nobody_to_ask
from retinue.core.clock import random_id, random_uuid
from retinue.core.envelope import Inbound, Outbound
from retinue.core.events import Emit, Notice, TurnEvent
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.dispatch.inbox import Inbox, Waiting
from retinue.dispatch.lanes import Lanes, default_concurrency
from retinue.dispatch.outbox import Outbox
from retinue.hooks.bus import HookBus
from retinue.providers.registry import Providers
from retinue.runtime.agents.agent import AgentWorkspace, open_workspace, seed_agent
from retinue.runtime.agents.confinement import make_sandboxes
from retinue.runtime.agents.tools import SessionTools, make_tools
from retinue.runtime.approvals.approvals import Permissions, open_permissions
from retinue.runtime.automation.background import announce
from retinue.runtime.automation.hooks import attach_bundled, open_bus
from retinue.runtime.board import Board
from retinue.runtime.commands.greeting import choose_display, list_commands, make_greeting
from retinue.runtime.home import Home
from retinue.runtime.memory.pool import MemoryPool
from retinue.runtime.models.access import ModelAccess, open_model_access
from retinue.runtime.reload import Retired
from retinue.runtime.telemetry.tracing import UNTRACED, Tracer, open_tracer
from retinue.runtime.turns.plan import AgentParts
from retinue.runtime.turns.runner import SessionRunner
from retinue.security.secrets import Secrets
from retinue.sessions.store import SessionStore
from retinue.sessions.upkeep.maintenance import run_maintenance
from retinue.storage.auditlog import AuditLog
from retinue.storage.database import Database
from retinue.storage.files.private import sweep_temporaries
from retinue.storage.lease import SessionLease
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.launch import CommandEnd

if TYPE_CHECKING:
    from retinue.runtime.commands.config_tool import GatewayControl
    from retinue.runtime.subagents.runner import SubagentRunner

log = logging.getLogger(__name__)

MOST_CONVERSATIONS = 500
"""Conversations that are kept at hand; more are opened again when they go on."""
APPROVALS_KEPT = timedelta(days=90)


async def show_nothing(event: TurnEvent) -> None:
    """The `Emit` of a turn that nobody watches."""


@dataclass
class Runtime:
    """All agents of a home, ready to talk."""

    home: Home
    providers: Providers
    secrets: Secrets
    bus: HookBus
    tools: SessionTools
    inbox: Inbox
    lanes: Lanes
    audit: AuditLog
    memories: MemoryPool
    permissions: Permissions
    database: Database
    job_database: Database
    """Where jobs are kept: the home's database, unless they have one of their own."""
    extra_skills: tuple[Path, ...] = ()
    board: Board = field(default_factory=Board)
    tracer: Tracer = UNTRACED
    outbox: Outbox = field(init=False)
    wakes: MemoryObjectReceiveStream[Waiting] = field(init=False)
    """Messages that no person sent and that nobody attends to yet."""
    _wake: MemoryObjectSendStream[Waiting] = field(init=False)
    _agents: dict[AgentId, AgentParts] = field(default_factory=dict, init=False)
    _conversations: dict[SessionKey, SessionRunner] = field(default_factory=dict, init=False)
    spawner: SubagentRunner | None = field(default=None, init=False)
    """What starts sub-agents, in a process that serves sessions."""
    engage: Callable[[], Awaitable[object]] | None = field(default=None, init=False)
    """Opens what starts sub-agents, in a process that does so only when the first is asked for."""
    _told: set[str] = field(default_factory=set, init=False)
    _renewed: anyio.Event = field(default_factory=anyio.Event, init=False)
    _retired: list[Retired] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.database, self.home.clock)
        self._wake, self.wakes = anyio.create_memory_object_stream[Waiting](math.inf)
        attach_bundled(self)

    def agent(self, agent: AgentId, *, seed: bool = True) -> AgentParts:
        """An agent with its workspace open; what the workspace lacks is made first, unless told otherwise."""
        found = self._agents.get(agent)
        if found is None:
            if seed:
                seed_agent(self.home, agent)
            workspace = open_workspace(self.home, agent, extra_skills=self.extra_skills)
            store = SessionStore(
                self.home.paths.sessions(agent),
                self.home.clock,
                durable=self.home.durable,
                cwd=str(workspace.root.path),
            )
            found = AgentParts(
                home=self.home,
                workspace=workspace,
                access=self.model_access(agent),
                store=store,
                tools=self.tools,
                bus=self.bus,
                engine=self._engine(workspace),
                inbox=self.inbox,
                lanes=self.lanes,
                audit=self.audit,
                memories=self.memories,
                permissions=self.permissions,
                stop_children=self.stop_children,
                tracer=self.tracer,
                restart_gateway=self.board.restart,
            )
            self._agents[agent] = found
        return found

    def stop_children(self, session: SessionKey) -> int:
        """End the sub-agents that a session started; returns how many were at work."""
        return self.spawner.cancel_children(session) if self.spawner is not None else 0

    def skill_programs(self, agent: AgentId) -> frozenset[str]:
        """The programs that an agent's skills ask for."""
        return self.agent(agent).workspace.skill_programs()

    def _engine(self, workspace: AgentWorkspace) -> ContextEngine:
        """The context engine of the slot, with the default one behind it; an unknown one is logged and not used."""
        default = DefaultEngine(
            workspace.settings.compaction, workspace.settings.context_pruning, redact=self.secrets.redactor
        )
        wanted = self.home.config.plugins.slots.context_engine
        factory = self.home.registry.engines.get(wanted) if wanted else None
        if factory is None:
            if wanted not in (None, "default", "legacy"):
                log.warning("there is no context engine '%s'; the default one is used", wanted)
            return default

        async def on_failure(text: str) -> None:
            log.warning("%s", text)

        return FallbackEngine(factory.make.load()(), default, on_failure)

    def model_access(self, agent: AgentId) -> ModelAccess:
        """An agent's way to its models, without opening its workspace."""
        if agent in self._agents:
            return self._agents[agent].access
        return open_model_access(self.home, agent, self.providers, self.secrets)

    def conversation(self, key: SessionKey, *, seed: bool = True) -> SessionRunner:
        """The conversation of a session, opened once."""
        found = self._conversations.get(key)
        parts = self.agent(key.agent, seed=seed)
        if found is None or (found.parts is not parts and not found.running):
            found = SessionRunner(parts, key)
        self._conversations.pop(key, None)
        self._conversations[key] = found
        if len(self._conversations) > MOST_CONVERSATIONS:
            self._forget_idle()
        return found

    def _forget_idle(self) -> None:
        """Let go of the conversation that was used longest ago; all there is to know of it is in its transcript."""
        idle = next((key for key, each in self._conversations.items() if not (each.busy or each.running)), None)
        if idle is not None:
            del self._conversations[idle]

    def renew(self, home: Home) -> Retired:
        """Take over a new configuration: turns that run keep what they began with, all later ones get the new parts.

        The databases, lanes and running commands stay. What is returned must be closed once no turn uses it.
        """
        retired = Retired(
            tuple(self._agents.values()),
            tuple(self._conversations.values()),
            self.providers,
            self.memories,
            self._retired.remove,
        )
        self._retired.append(retired)
        self.home = home
        self.secrets = Secrets(home.environment, home.redactor)
        self.providers = make_providers(home, self.secrets)
        self.permissions = self.permissions.renewed(home)
        self.tools = make_tools(home, self.tools.commands, self.board, self.secrets, self.permissions.rulebook)
        self.bus = open_bus(home)
        self.memories = MemoryPool(self.database)
        self.audit = home.audit
        home.tune_logs()
        self._agents = {}
        attach_bundled(self)
        renewed, self._renewed = self._renewed, anyio.Event()
        renewed.set()
        return retired

    def let_drive(self, gateway: GatewayControl) -> None:
        """Give agents the tool that drives the gateway of this process."""
        self.board.process = gateway
        self.tools = make_tools(self.home, self.tools.commands, self.board, self.secrets, self.permissions.rulebook)

    async def follow_memory(self, agent: AgentId) -> None:
        """Keep an agent's memory up to date until cancelled, whatever configuration comes."""
        while True:
            renewed = self._renewed
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.memories.follow, self.agent(agent).workspace)
                await renewed.wait()
                tasks.cancel_scope.cancel()

    async def session_key(self, session: str | None, agent: str | None) -> SessionKey:
        """The session a person named."""
        return self.home.session_key(session, agent)

    async def stop(self, session: SessionKey) -> bool:
        """End the running turn of a session, whichever process runs it."""
        return self.conversation(session).ask_to_stop()

    async def greet(self, session: SessionKey) -> Greeting:
        """What somebody should know who begins to talk."""
        return await make_greeting(self.conversation(session))

    async def display(self, session: SessionKey) -> Display:
        """How the session wants its turns shown."""
        return choose_display(self.conversation(session))

    async def commands(self, session: SessionKey) -> Sequence[str]:
        """The names of the session's slash commands."""
        return list_commands(self.conversation(session))

    async def say(self, inbound: Inbound, show: Emit = show_nothing, ask: Ask = nobody_to_ask) -> Outbound:
        """Answer a message, and tell what was found damaged in the home and what was done about it."""
        conversation = self.conversation(inbound.session)
        await self._tell_notes(conversation, show)
        outbound = await conversation.say(inbound, RunId(random_uuid()), show, ask)
        await self._tell_notes(conversation, show)
        return outbound

    async def _tell_notes(self, conversation: SessionRunner, show: Emit) -> None:
        parts = conversation.parts
        for note in (*self.inbox.notes, *parts.store.notes, *parts.access.credentials.notes):
            if note not in self._told:
                self._told.add(note)
                await show(Notice(note))

    def tidy(self, agent: AgentId) -> None:
        """Archive and delete what an agent's sessions need no more, as configured."""
        home = self.home
        plan, _ = run_maintenance(
            self.agent(agent).store,
            home.config.session.maintenance,
            home.clock.now(),
            partial(SessionLease, home.paths),
        )
        hour_ago = home.clock.now() - timedelta(hours=1)
        for folder in (home.paths.path, home.paths.sessions(agent), self.agent(agent).workspace.root.path):
            sweep_temporaries(folder, hour_ago)
        for what, why in plan.reasons.items():
            log.info("tidied %s of %s: %s", what, agent, why)
        self.permissions.approvals.prune(home.clock.now() - APPROVALS_KEPT)
        for kept, why in make_sandboxes(home).prune(agent):
            log.info("removed the sandbox %s: %s", kept.name, why)

    async def missed(self, session: SessionKey) -> Sequence[Missed]:
        """Answers of a session that nobody has seen yet."""
        return tuple(Missed(item.inbound.text, item.outbound) for item in self.inbox.undelivered(session))

    async def confirm(self, run: RunId) -> None:
        """Note that an answer reached its person."""
        self.inbox.delivered(run)

    async def command_ended(self, end: CommandEnd) -> None:
        """Tell an agent that its background command is over.

        The message is kept first. A running turn takes it in where the queue's mode lets it; whoever attends `wakes`
        sees to it that it is answered where none does, or where the turn was just ending.
        """
        inbound = announce(end)
        accepted = self.inbox.accept(inbound, RunId(random_uuid()))
        self._wake.send_nowait(Waiting(accepted.run, inbound, accepted.accepted_at))

    async def answer(self, waiting: Waiting, show: Emit = show_nothing, ask: Ask = nobody_to_ask) -> Outbound | None:
        """Answer a message that is kept already; None where its answer was given with that of another."""
        outcome = self.inbox.outcome(waiting.run)
        if outcome is None:
            return await self.conversation(waiting.inbound.session).see_through(waiting.run, show, ask)
        return outcome if self.inbox.delivered(waiting.run) else None

    def close(self) -> None:
        self._wake.close()
        self.wakes.close()
        for parts in self._agents.values():
            parts.store.settle_all()
            parts.workspace.close()

    async def aclose(self) -> None:
        """Close what was retired and not closed yet, and what models and memory hold open."""
        for retired in tuple(self._retired):
            await retired.close()
        await self.memories.aclose()
        await self.providers.aclose()


def make_providers(home: Home, secrets: Secrets) -> Providers:
    """Every way to a model that the configuration and the plugins know."""
    adapters = {api: factory.make.target for api, factory in home.registry.providers.items()}
    return Providers(home.config.models, secrets, home.paths.models, adapters)


def _open_job_database(home: Home, database: Database, stack: AsyncExitStack) -> Database:
    if home.job_database == database.path:
        return database
    return stack.enter_context(closing(Database(home.job_database, durable=home.durable, newer="aside")))


@asynccontextmanager
async def open_runtime(home: Home, *, extra_skills: tuple[Path, ...] = ()) -> AsyncIterator[Runtime]:
    """Open every part in order, and close them in reverse."""
    home.tune_logs()
    secrets = Secrets(home.environment, home.redactor)
    async with AsyncExitStack() as stack:

        async def on_exit(end: CommandEnd) -> None:
            await runtime.command_ended(end)

        commands = CommandTable(
            home.clock,
            random_id,
            on_exit=on_exit,
            max_output=home.config.tools.exec.max_output_chars,
        )
        await stack.enter_async_context(commands)
        board = Board()
        database = Database(home.paths.path / "state.sqlite", durable=home.durable, newer="aside")
        stack.callback(database.close)
        permissions = stack.enter_context(open_permissions(home, database))
        tools = make_tools(home, commands, board, secrets, permissions.rulebook)
        inbox = Inbox(database, home.clock, hide=home.redactor.hide_exact)
        at_once = home.config.agents.defaults.max_concurrent or default_concurrency(os.cpu_count())
        lanes = Lanes(at_once, home.config.agents.defaults.subagents.max_concurrent)
        runtime = Runtime(
            home=home,
            providers=make_providers(home, secrets),
            secrets=secrets,
            bus=open_bus(home),
            tools=tools,
            inbox=inbox,
            lanes=lanes,
            audit=home.audit,
            memories=MemoryPool(database),
            permissions=permissions,
            database=database,
            job_database=_open_job_database(home, database, stack),
            extra_skills=extra_skills,
            board=board,
            tracer=await stack.enter_async_context(open_tracer(home.config.diagnostics.otel, secrets)),
        )
        stack.push_async_callback(runtime.aclose)
        board.attach(runtime)
        permissions.rulebook.attach_skills(runtime.skill_programs)
        permissions.approvals.sweep()
        stack.callback(runtime.close)
        if not gc.isenabled():  # the program ran without while it started, and most of what that made is here to stay
            gc.freeze()
            gc.enable()
        yield runtime
