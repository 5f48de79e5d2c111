"""A running Retinue: every part opened, and one way in for messages."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from retinue.context.engine import ContextEngine, DefaultEngine
from retinue.context.fallback import FallbackEngine
from retinue.core.approval import Ask, nobody_to_ask
from retinue.core.clock import random_id, random_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.events import Emit, Notice, TurnEvent
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import text_of
from retinue.dispatch.inbox import Inbox, Undelivered
from retinue.dispatch.lanes import Lanes, default_concurrency
from retinue.hooks.bus import Bus
from retinue.providers.registry import Providers
from retinue.runtime.board import Board
from retinue.runtime.conversation import Conversation
from retinue.runtime.foundation import Foundation
from retinue.runtime.hooks import open_bus
from retinue.runtime.memories import Memories
from retinue.runtime.models import ModelAccess, open_model_access
from retinue.runtime.plan import AgentParts
from retinue.runtime.rooms import AgentRoom, open_room, seed_agent
from retinue.runtime.tools import SessionTools, make_tools
from retinue.security.secrets import Secrets
from retinue.sessions.maintenance import maintain
from retinue.sessions.store import SessionStore
from retinue.storage.auditlog import AuditLog
from retinue.storage.database import Database
from retinue.storage.lease import SessionLease
from retinue.storage.private import sweep_temporaries
from retinue.toolkit.running import CommandEnd, CommandTable
from retinue.toolkit.shell import describe_end

log = logging.getLogger(__name__)

MOST_WAKES = 100


async def show_nothing(event: TurnEvent) -> None:
    """The `Emit` of a turn that nobody watches."""


@dataclass
class Runtime:
    """All agents of a home, ready to talk."""

    foundation: Foundation
    providers: Providers
    secrets: Secrets
    bus: Bus
    tools: SessionTools
    inbox: Inbox
    lanes: Lanes
    audit: AuditLog
    memories: Memories
    extra_skills: tuple[Path, ...] = ()
    wakes: MemoryObjectReceiveStream[Inbound] = field(init=False)
    _wake: MemoryObjectSendStream[Inbound] = field(init=False)
    _agents: dict[AgentId, AgentParts] = field(default_factory=dict, init=False)
    _conversations: dict[SessionKey, Conversation] = field(default_factory=dict, init=False)
    _told: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._wake, self.wakes = anyio.create_memory_object_stream[Inbound](MOST_WAKES)

    def agent(self, agent: AgentId, *, seed: bool = True) -> AgentParts:
        """An agent with its workspace open; what the workspace lacks is made first, unless told otherwise."""
        found = self._agents.get(agent)
        if found is None:
            if seed:
                seed_agent(self.foundation, agent)
            room = open_room(self.foundation, agent, extra_skills=self.extra_skills)
            store = SessionStore(
                self.foundation.home.sessions(agent),
                self.foundation.clock,
                durable=self.foundation.durable,
                cwd=str(room.root.path),
            )
            found = AgentParts(
                foundation=self.foundation,
                room=room,
                access=self.model_access(agent),
                store=store,
                tools=self.tools,
                bus=self.bus,
                engine=self._engine(room),
                inbox=self.inbox,
                lanes=self.lanes,
                audit=self.audit,
                memories=self.memories,
            )
            self._agents[agent] = found
        return found

    def _engine(self, room: AgentRoom) -> ContextEngine:
        """The context engine of the slot, with the default one behind it; an unknown one is logged and not used."""
        default = DefaultEngine(room.settings.compaction, room.settings.context_pruning, redact=self.secrets.redactor)
        wanted = self.foundation.config.plugins.slots.context_engine
        factory = self.foundation.registry.engines.get(wanted) if wanted else None
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
        return open_model_access(self.foundation, agent, self.providers, self.secrets)

    def conversation(self, key: SessionKey, *, seed: bool = True) -> Conversation:
        """The conversation of a session, opened once."""
        found = self._conversations.get(key)
        if found is None:
            found = self._conversations[key] = Conversation(self.agent(key.agent, seed=seed), key)
        return found

    async def say(self, inbound: Inbound, show: Emit = show_nothing, ask: Ask = nobody_to_ask) -> Outbound:
        """Answer a message, and tell what was found damaged in the home and what was done about it."""
        conversation = self.conversation(inbound.session)
        await self._tell_notes(conversation, show)
        outbound = await conversation.say(inbound, RunId(random_uuid()), show, ask)
        await self._tell_notes(conversation, show)
        return outbound

    async def _tell_notes(self, conversation: Conversation, show: Emit) -> None:
        for note in (*self.inbox.notes, *conversation.parts.store.notes):
            if note not in self._told:
                self._told.add(note)
                await show(Notice(note))

    def tidy(self, agent: AgentId) -> None:
        """Archive and delete what an agent's sessions need no more, as configured."""
        foundation = self.foundation
        plan, _ = maintain(
            self.agent(agent).store,
            foundation.config.session.maintenance,
            foundation.clock.now(),
            partial(SessionLease, foundation.home),
        )
        hour_ago = foundation.clock.now() - timedelta(hours=1)
        for folder in (foundation.home.path, foundation.home.sessions(agent), self.agent(agent).room.root.path):
            sweep_temporaries(folder, hour_ago)
        for what, why in plan.reasons.items():
            log.info("tidied %s of %s: %s", what, agent, why)

    def missed(self, key: SessionKey) -> tuple[Undelivered, ...]:
        """Answers of a session that nobody has seen yet."""
        return self.inbox.undelivered(key)

    def confirm(self, run: RunId) -> None:
        """Note that an answer reached its person."""
        self.inbox.delivered(run)

    async def command_ended(self, end: CommandEnd) -> None:
        """Tell an agent that its background command is over: in its running turn, or by a turn of its own."""
        told = text_of(describe_end(end, end.output).content)
        text = f"[Background command {end.id} (`{end.command}`) ended; not written by a person]\n{told}"
        inbound = Inbound(text, end.session, source=Source.BACKGROUND)
        conversation = self._conversations.get(end.session)
        if conversation is not None and conversation.running:
            self.inbox.accept(inbound, RunId(random_uuid()))
            return
        try:
            self._wake.send_nowait(inbound)
        except anyio.WouldBlock:
            log.warning("too many ended commands wait for their agent; %s is dropped", end.id)

    def close(self) -> None:
        self._wake.close()
        self.wakes.close()
        for parts in self._agents.values():
            parts.store.settle_all()
            parts.room.close()


@asynccontextmanager
async def open_runtime(foundation: Foundation, *, extra_skills: tuple[Path, ...] = ()) -> AsyncIterator[Runtime]:
    """Open every part in order, and close them in reverse."""
    secrets = Secrets(foundation.environment)
    adapters = {api: factory.make.target for api, factory in foundation.registry.providers.items()}
    providers = Providers(foundation.config.models, secrets, foundation.home.models, adapters)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(providers.aclose)

        async def on_exit(end: CommandEnd) -> None:
            await runtime.command_ended(end)

        commands = CommandTable(
            foundation.clock,
            random_id,
            on_exit=on_exit,
            max_output=foundation.config.tools.exec.max_output_chars,
        )
        await stack.enter_async_context(commands)
        board = Board()
        tools = make_tools(foundation, commands, board, secrets)
        database = Database(foundation.home.path / "state.sqlite", durable=foundation.durable, newer="aside")
        stack.callback(database.close)
        inbox = Inbox(database, foundation.clock)
        at_once = foundation.config.agents.defaults.max_concurrent or default_concurrency(os.cpu_count())
        lanes = Lanes(at_once)
        memories = Memories()
        stack.push_async_callback(memories.aclose)
        audit = AuditLog(foundation.home.path / "audit.jsonl", foundation.clock)
        runtime = Runtime(
            foundation, providers, secrets, open_bus(foundation), tools, inbox, lanes, audit, memories, extra_skills
        )
        board.attach(runtime)
        stack.callback(runtime.close)
        gc.freeze()
        gc.enable()
        yield runtime
