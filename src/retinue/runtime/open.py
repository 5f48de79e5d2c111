"""Opening everything: the services of the process and of a configuration, sessions and dispatcher; reloading them."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from retinue.context.prompt.inputs import PromptMode
from retinue.core.api import Display, Greeting, Missed
from retinue.core.approval import Ask
from retinue.core.clock import random_id
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import ConfigError, StorageError
from retinue.core.events import Emit, Notice, TurnEvent
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import text_of
from retinue.core.model import ToolSpec
from retinue.dispatch.inbox import Inbox
from retinue.dispatch.lanes import Lanes, default_concurrency
from retinue.dispatch.outbox import Outbox
from retinue.runtime.agents.agent import Agent, GatewayControl, HomeServices, Services
from retinue.runtime.agents.confinement import make_sandboxes
from retinue.runtime.agents.mcp import make_mcp_servers
from retinue.runtime.agents.prompting import AgentPrompt
from retinue.runtime.agents.tools import HomeTools
from retinue.runtime.agents.workspace import open_workspace
from retinue.runtime.approvals import Permissions, open_permissions
from retinue.runtime.automation.hooks import attach_bundled, open_bus
from retinue.runtime.commands.session_api import carry_out, choose_display, list_commands, make_greeting
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.home import Home
from retinue.runtime.memory.pool import MemoryPool
from retinue.runtime.models import make_providers
from retinue.runtime.session_services import make_home_tools
from retinue.runtime.telemetry.tracing import open_tracer
from retinue.runtime.turns.runner import SessionRunner
from retinue.runtime.turns.sessions import Sessions
from retinue.security.secrets import Secrets
from retinue.security.untrusted_text import TextSource, literal, sanitise_line, wrap_untrusted
from retinue.sessions.maintenance import run_maintenance
from retinue.storage.database import mark_report_shown, read_reports
from retinue.storage.files.descriptors import sweep_temporaries
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.launch import CommandEnd
from retinue.toolkit.processes.tools import format_end

if TYPE_CHECKING:
    from retinue.context.prompt.codex import CodexRequest, TurnKind
    from retinue.toolkit.mcp.servers import McpServers

log = logging.getLogger(__name__)

APPROVALS_KEPT = timedelta(days=90)


async def show_nothing(event: TurnEvent) -> None:
    """The `Emit` of a turn that is not watched."""


class Runtime:
    """All agents of a home: the sessions, and the dispatcher that answers messages in them."""

    dispatcher: Dispatcher
    tasks: TaskGroup
    """Tasks that last as long as the runtime."""

    def __init__(self, services: Services, *, extra_skills: tuple[Path, ...] = ()) -> None:
        self.sessions = Sessions(services, extra_skills=extra_skills)
        self.retired: list[Callable[[], Awaitable[None]]] = []
        """Closes services that reloads replaced and running turns may still use."""
        self._shown_notes: set[str] = set()

    @property
    def home(self) -> Home:
        """The home under the current configuration."""
        return self.sessions.home

    @property
    def shared(self) -> HomeServices:
        """The services of the current configuration."""
        return self.sessions.shared

    @property
    def services(self) -> Services:
        """The services of the process."""
        return self.sessions.services

    def agent(self, agent: AgentId, *, seed: bool = True) -> Agent:
        """Return an agent with its workspace open."""
        return self.sessions.agent(agent, seed=seed)

    def runner(self, key: SessionKey, *, seed: bool = True) -> SessionRunner:
        """Return the runner of a session."""
        return self.sessions.runner(key, seed=seed)

    async def session_key(self, session: str | None, agent: str | None) -> SessionKey:
        """Return the session with a name."""
        return self.home.session_key(session, agent)

    async def stop(self, session: SessionKey) -> bool:
        """Stop the running turn of a session, in any process."""
        return self.dispatcher.stop(session)

    async def greet(self, session: SessionKey, *, owner: bool = True) -> Greeting:
        """Return the greeting of a session; the owner also gets new reports about damage and why nothing is stored."""
        greeting = await make_greeting(self.runner(session))
        reports = self._take_reports() if owner else []
        if owner and self.read_only_because is not None:
            from retinue.audit.summary import describe_read_only

            reports.append(describe_read_only(self.read_only_because, self.home.paths))
        return msgspec.structs.replace(greeting, caution="\n".join(filter(None, (greeting.caution, *reports))))

    async def display(self, session: SessionKey) -> Display:
        """Return how the turns of the session are shown."""
        return await choose_display(self.runner(session))

    async def commands(self, session: SessionKey) -> Sequence[str]:
        """Return the names of the session's slash commands."""
        return list_commands(self.dispatcher, session)

    async def say(self, inbound: Inbound, show: Emit = show_nothing, ask: Ask | None = None) -> Outbound:
        """Answer a message, and show damage that was found in the home and its repair."""
        await self._show_notes(inbound.session.agent, show)
        outbound = await self.dispatcher.say(inbound, show, ask)
        await self._show_notes(inbound.session.agent, show)
        return outbound

    async def _show_notes(self, agent: AgentId, show: Emit) -> None:
        for report in self._take_reports():
            await show(Notice(report))
        found = self.agent(agent)
        for note in (*self.services.inbox.notes, *found.store.notes, *found.access.credentials.notes):
            if note not in self._shown_notes:
                self._shown_notes.add(note)
                await show(Notice(note))

    def _take_reports(self) -> list[str]:
        """Return the reports about damaged databases that no chat has shown yet, and mark them as shown."""
        texts = []
        for path in self.home.state_files:
            for report, text in read_reports(path, unshown=True).items():
                mark_report_shown(report)
                if text not in self._shown_notes:
                    texts.append(text)
        self._shown_notes.update(texts)
        return texts

    @property
    def read_only_because(self) -> StorageError | None:
        """Return why nothing can be stored at the moment; None if the databases can be changed."""
        return self.services.database.problem or self.services.job_database.problem

    def recover(self) -> bool:
        """Allow changes again if the disk can be written now; return whether they are allowed."""
        return self.services.database.recover() and self.services.job_database.recover()

    async def copy_databases(self) -> None:
        """Copy each database that changed since its last copy, which must be an hour old, unless a turn runs."""
        from retinue.storage.database.copies import is_copy_due, make_copy

        if self.services.lanes.running or self.services.lanes.waiting:
            return
        now = self.home.clock.now()
        for path in self.home.state_files:
            if is_copy_due(path, now):
                await anyio.to_thread.run_sync(make_copy, path, now)

    def tidy(self, agent: AgentId) -> None:
        """Archive and delete old data of an agent's sessions, as configured."""
        home, found = self.home, self.agent(agent)
        plan, _ = run_maintenance(
            found.store,
            home.config.session.maintenance,
            home.clock.now(),
            home.lease,
        )
        hour_ago = home.clock.now() - timedelta(hours=1)
        for folder in (home.paths.path, home.paths.sessions(agent), found.workspace.root.path):
            sweep_temporaries(folder, hour_ago)
        if days := home.config.tools.media.keep_days:
            from retinue.runtime.channels.stored_media import expire_media

            expire_media(found, home.clock.now() - timedelta(days=days))
        for what, why in plan.reasons.items():
            log.info("tidied %s of %s: %s", what, agent, why)
        self.services.approvals.prune(home.clock.now() - APPROVALS_KEPT)
        for sandbox, why in make_sandboxes(home).prune(agent):
            log.info("removed the sandbox %s: %s", sandbox.name, why)

    async def missed(self, session: SessionKey) -> Sequence[Missed]:
        """Return the undelivered answers of a session."""
        return tuple(Missed(item.inbound.text, item.outbound) for item in self.services.inbox.undelivered(session))

    async def confirm(self, run: RunId) -> None:
        """Record that an answer was delivered."""
        self.services.inbox.delivered(run)

    async def aclose(self) -> None:
        """Close the agents, the services that reloads replaced, and the connections of models and memory."""
        self.dispatcher.close()
        self.sessions.close_agents()
        for close in tuple(self.retired):
            await close()
        if self.shared.mcp is not None:
            self.shared.mcp.close()
        await self.shared.memories.aclose()
        await self.shared.providers.aclose()


def make_home_services(runtime: Runtime, home: Home, permissions: Permissions) -> HomeServices:
    """Make the services of one configuration."""
    secrets = Secrets(home.environment, home.redactor)
    mcp = make_mcp_servers(home, runtime.services.commands, secrets)
    if mcp is not None:
        mcp.attach(runtime.tasks, partial(_renew_tools, runtime, home))
    return HomeServices(
        home=home,
        secrets=secrets,
        providers=make_providers(home, secrets),
        bus=open_bus(home),
        memories=MemoryPool(runtime.services.database),
        permissions=permissions,
        tools=_make_tools(runtime, home, secrets, permissions, mcp),
        mcp=mcp,
    )


def _make_tools(
    runtime: Runtime, home: Home, secrets: Secrets, permissions: Permissions, mcp: McpServers | None
) -> HomeTools:
    return make_home_tools(
        home,
        lambda: runtime.dispatcher,
        runtime.services.commands,
        secrets,
        permissions.rule_store,
        mcp=mcp,
        controls_gateway=runtime.sessions.gateway is not None,
    )


def attach_gateway(runtime: Runtime, gateway: GatewayControl) -> None:
    """Give agents the tool that controls the gateway of this process."""
    runtime.sessions.gateway = gateway
    _renew_tools(runtime, runtime.shared.home)


def _renew_tools(runtime: Runtime, home: Home) -> None:
    """Make the tools of a configuration again if it is still used; the next turn of every session gets them."""
    shared = runtime.shared
    if shared.home is home:
        made = _make_tools(runtime, home, shared.secrets, shared.permissions, shared.mcp)
        shared.tools.replace(made.toolset)


def describe_command_end(end: CommandEnd) -> Inbound:
    """Return the message about the end of a command, with its output marked as untrusted."""
    output = text_of(format_end(end, end.output).content)
    command = sanitise_line(literal(end.command))
    label = f"[Background command {end.id} (`{command}`) ended; not written by a person]"
    text = f"{label}\n{wrap_untrusted(output, TextSource.COMMAND, new_id=random_id, warn=False)}"
    return Inbound(text, end.session, source=Source.BACKGROUND, owner=end.owner, foreign=end.label.is_foreign)


@asynccontextmanager
async def open_runtime(
    home: Home, *, extra_skills: tuple[Path, ...] = (), degrades: bool = False
) -> AsyncIterator[Runtime]:
    """Open every part in order, and close them in reverse.

    With `degrades`, a disk that cannot be written makes the runtime read-only instead of raising an error. Raises
    `ConfigError` if the configuration is in effect although a model in it cannot be used.
    """
    if home.loaded.source == "file" and home.loaded.errors:
        problems = "\n".join(map(str, home.loaded.errors))
        raise ConfigError(f"An agent has no usable model:\n{problems}\nCorrect it, then run `retinue config validate`.")
    home.tune_logs()
    async with AsyncExitStack() as stack:

        async def on_exit(end: CommandEnd) -> None:
            runtime.dispatcher.announce(describe_command_end(end))

        commands = CommandTable(
            home.clock,
            random_id,
            on_exit=on_exit,
            max_output=home.config.tools.exec.max_output_chars,
        )
        await stack.enter_async_context(commands)
        database = stack.enter_context(closing(home.open_state(degrades=degrades)))
        job_database = database
        if home.job_database in home.state_files[1:]:
            job_database = stack.enter_context(closing(home.open_state(home.job_database, degrades=degrades)))
        permissions = stack.enter_context(open_permissions(home, database))
        defaults = home.config.agents.defaults
        secrets = Secrets(home.environment, home.redactor)
        services = Services(
            database=database,
            job_database=job_database,
            inbox=Inbox(database, home.clock, hide=home.redactor.hide_exact),
            outbox=Outbox(database, home.clock, home.paths.sent_log),
            lanes=Lanes(
                defaults.max_concurrent or default_concurrency(os.cpu_count()), defaults.subagents.max_concurrent
            ),
            commands=commands,
            approvals=permissions.approvals,
            tracer=await stack.enter_async_context(open_tracer(home.config.diagnostics.otel, secrets)),
        )
        runtime = Runtime(services, extra_skills=extra_skills)
        async with _open_tasks() as tasks:
            runtime.dispatcher = Dispatcher(
                runtime.sessions, lambda inbound: carry_out(runtime.dispatcher, inbound), tasks
            )
            runtime.tasks = tasks
            runtime.sessions.shared = make_home_services(runtime, home, permissions)
            stack.push_async_callback(runtime.aclose)
            attach_bundled(runtime.sessions)
            permissions.rule_store.attach_skills(runtime.sessions.skill_programs)
            if runtime.read_only_because is None:
                services.approvals.sweep()
            if not gc.isenabled():
                # It was off during the start; most objects of the start live as long as the process.
                gc.freeze()
                gc.enable()
            yield runtime


@asynccontextmanager
async def _open_tasks() -> AsyncIterator[TaskGroup]:
    """Open a task group that is cancelled at the end; an error of the block is raised as it is and not as a group."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


async def preview_prompt(home: Home, session: SessionKey, mode: PromptMode) -> tuple[AgentPrompt, tuple[ToolSpec, ...]]:
    """Build the prompt and tool schemas of a session; raise `WorkspaceError` if there is no workspace yet."""
    with open_workspace(home, session.agent):
        pass
    async with open_runtime(home) as runtime:
        return await runtime.runner(session, seed=False).planner.preview(mode)


async def preview_codex(home: Home, session: SessionKey, kind: TurnKind, message: str) -> CodexRequest:
    """Build the request that Codex would get for a turn of a session; creates nothing."""
    with open_workspace(home, session.agent):
        pass
    async with open_runtime(home) as runtime:
        return await runtime.runner(session, seed=False).planner.preview_codex(kind, message)


class ReplacedServices:
    """The services that a new configuration replaced, until the turns that began with them have ended."""

    def __init__(
        self, runtime: Runtime, shared: HomeServices, agents: tuple[Agent, ...], runners: tuple[SessionRunner, ...]
    ) -> None:
        self._runtime = runtime
        self._shared = shared
        self._agents = agents
        self._runners = runners
        runtime.retired.append(self.close)

    @property
    def in_use(self) -> bool:
        """Return whether a turn that began with the previous configuration still runs."""
        return any(runner.busy for runner in self._runners)

    async def close(self) -> None:
        """Close everything; no turn may use it anymore."""
        self._runtime.retired.remove(self.close)
        for agent in self._agents:
            agent.store.settle_all()
            agent.workspace.close()
        if self._shared.mcp is not None:
            self._shared.mcp.close()
        await self._shared.memories.aclose()
        await self._shared.providers.aclose()


def swap_configuration(runtime: Runtime, home: Home) -> ReplacedServices:
    """Use a new configuration: running turns keep the old services, later ones get the new services.

    The services of the process stay. The returned object must be closed when no turn uses it.
    """
    before = runtime.shared
    agents, runners = runtime.sessions.replace(make_home_services(runtime, home, before.permissions.renewed(home)))
    home.tune_logs()
    attach_bundled(runtime.sessions)
    return ReplacedServices(runtime, before, agents, runners)
