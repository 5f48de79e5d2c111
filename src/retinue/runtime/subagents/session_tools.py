"""The other sessions and agents of a home, as the tools of one session may use them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.envelope import Inbound, Source
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, SessionKey, parse_agent_id
from retinue.core.messages import AssistantMessage, UserMessage, text_of
from retinue.dispatch.silence import REPLY_SKIP
from retinue.dispatch.subagents import Child, SpawnOrder, SubagentStore, describe_child
from retinue.runtime.agents.workspace import identity_of
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.subagents.runner import SubagentRunner
from retinue.runtime.turns.sessions import Sessions
from retinue.security.untrusted_text import literal
from retinue.sessions.entries import MessageAdded
from retinue.sessions.tree import has_untrusted_content
from retinue.toolkit.sessions import (
    CallingSession,
    SessionsSendArguments,
    SpawnArguments,
    SubagentsArguments,
    ToolAnswer,
)

NO_GATEWAY = "Sub-agents and messages to other sessions need the gateway. Start it with `retinue gateway start`."
LOG_CHARS = 4_000


class HomeSessionTools(Struct, frozen=True):
    """All agents and sessions of a home."""

    _sessions: Sessions
    _dispatcher: Dispatcher

    async def spawn(self, caller: CallingSession, arguments: SpawnArguments) -> ToolAnswer:
        order = SpawnOrder(
            task=arguments.task,
            label=literal(arguments.label, 60),
            agent=parse_agent_id(arguments.agent_id) if arguments.agent_id else None,
            model=arguments.model,
            thinking=arguments.thinking,
            timeout=timedelta(seconds=arguments.run_timeout_seconds) if arguments.run_timeout_seconds else None,
            context=arguments.context,
            cleanup=arguments.cleanup,
            sandbox=arguments.sandbox,
            task_name=arguments.task_name,
            workspace=arguments.workspace,
        )
        subagents = await self._open_subagents()
        spawned = await subagents.spawn(order, caller)
        child = spawned.child
        facts = {"status": "accepted", "runId": child.run, "childSessionKey": child.session.text}
        return ToolAnswer({**facts, "note": " ".join(spawned.notes)} if spawned.notes else facts)

    async def manage_subagents(self, caller: CallingSession, arguments: SubagentsArguments) -> ToolAnswer:
        store = self._children()
        if arguments.action == "list":
            children = store.of_parent(caller.session)
            return ToolAnswer([_brief(child) for child in children], any(child.foreign for child in children))
        if not arguments.run:
            raise UsageError(f"`{arguments.action}` needs `run`, the id or taskName of a sub-agent. `list` shows them.")
        child = store.named(caller.session, arguments.run) or store.get(arguments.run)
        if child.parent != caller.session:
            raise UsageError(f"The sub-agent {arguments.run} does not belong to this session.")
        match arguments.action:
            case "cancel":
                return ToolAnswer(
                    {"cancelled": (await self._open_subagents()).cancel(child, parent_knows=True), "runId": child.run}
                )
            case "steer":
                if not arguments.message.strip():
                    raise UsageError("`steer` needs a message.")
                await (await self._open_subagents()).steer(child, arguments.message, foreign=caller.tainted)
                return ToolAnswer({"steered": child.run})
            case "log":
                facts = {**_brief(child), "text": child.text, "messages": self._messages(child.session, 20)}
                return ToolAnswer(facts, child.foreign or self._is_foreign(child.session))

    async def sessions(self, caller: CallingSession, limit: int) -> ToolAnswer:
        found: list[dict[str, Any]] = []
        for agent in self._sessions.home.config.agents.ids:
            found += [
                {
                    "key": session.key.text,
                    "messages": session.messages,
                    "updatedAt": session.updated_at.isoformat(),
                    "tokens": session.usage.total,
                }
                for session in self._sessions.agent(agent).store.list()
                if self._objection(caller.session, session.key) is None
            ]
        return ToolAnswer(sorted(found, key=lambda row: str(row["updatedAt"]), reverse=True)[:limit])

    async def history(self, caller: CallingSession, session: str, limit: int) -> ToolAnswer:
        key = self._reachable(caller.session, session)
        return ToolAnswer({"session": key.text, "messages": self._messages(key, limit)}, self._is_foreign(key))

    async def send(self, caller: CallingSession, arguments: SessionsSendArguments) -> ToolAnswer:
        key = self._reachable(caller.session, arguments.session_key)
        if key == caller.session:
            raise UsageError("That is this session. Put it into your answer.")
        dispatcher = (await self._open_subagents()).dispatcher
        number = self._exchanges(caller.session) + 1
        limit = self._sessions.home.config.session.agent_to_agent.max_ping_pong_turns
        if number > limit:
            raise UsageError(
                f"Sessions have answered each other {limit} times without a message of a person "
                "(session.agentToAgent.maxPingPongTurns). Tell your user instead."
            )
        head = f"[Message {number} from session {caller.session}; not written by a person; {REPLY_SKIP} ends it]"
        message = Inbound(
            f"{head}\n{arguments.message}",
            key,
            source=Source.OTHER,
            owner=caller.owner,
            foreign=caller.tainted,
            exchange=number,
        )
        accepted = await dispatcher.submit(message)
        answer = await dispatcher.wait(accepted.run, arguments.timeout_seconds) if arguments.timeout_seconds else None
        if answer is None:
            return ToolAnswer({"status": "accepted", "runId": accepted.run})
        status = "silent" if answer.silent else answer.status.value
        facts = {"status": status, "runId": accepted.run, "answer": answer.text or answer.error}
        return ToolAnswer(facts, self._is_foreign(key))

    async def agents(self, caller: CallingSession) -> ToolAnswer:
        agents = self._sessions.home.config.agents
        allowed = set(agents.resolve(caller.session.agent).subagents.allow_agents)
        return ToolAnswer(
            [
                {"id": agent, "name": self._name_of(agent)}
                for agent in agents.ids
                if agent == caller.session.agent or {"*", agent} & allowed
            ]
        )

    def _name_of(self, agent: AgentId) -> str:
        return identity_of(self._sessions.home, agent).name or agent

    def _reachable(self, mine: SessionKey, text: str) -> SessionKey:
        key = SessionKey.parse(text, default_agent=mine.agent)
        self._sessions.home.config.agents.resolve(key.agent)
        objection = self._objection(mine, key)
        if objection is not None:
            raise UsageError(f"You may not reach the session {key}: {objection}.")
        return key

    def _objection(self, mine: SessionKey, other: SessionKey) -> str | None:
        """Return why a session may not see another, by `tools.sessions.visibility` and `tools.agentToAgent`."""
        tools = self._sessions.home.config.tools
        visibility = tools.sessions.visibility
        if other == mine:
            return None
        if visibility == "self":
            return "only its own session is visible (tools.sessions.visibility)"
        if other.agent != mine.agent:
            if visibility != "all":
                return "sessions of other agents are not visible (tools.sessions.visibility)"
            between = tools.agent_to_agent
            if not between.enabled or not ({"*", other.agent} & set(between.allow)):
                return "agents may not talk to each other (tools.agentToAgent)"
            return None
        if visibility == "tree" and other not in self._family(mine):
            return "it is not one of its sub-agents (tools.sessions.visibility)"
        return None

    def _exchanges(self, mine: SessionKey) -> int:
        """Return how many messages between sessions preceded the one that this session answers; 0 for a person's."""
        store = self._sessions.agent(mine.agent).store
        if store.find(mine) is None:
            return 0
        path = store.open(mine).tree.path
        said = [entry.body.message for entry in path if isinstance(entry.body, MessageAdded)]
        last = next((message for message in reversed(said) if isinstance(message, UserMessage)), None)
        return last.exchange if last else 0

    def _family(self, mine: SessionKey) -> set[SessionKey]:
        """Return the sub-agents of a session, and theirs."""
        found: set[SessionKey] = set()
        waiting = [mine]
        while waiting:
            children = {child.session for child in self._children().of_parent(waiting.pop())} - found
            found |= children
            waiting += children
        return found

    def _messages(self, key: SessionKey, limit: int) -> list[dict[str, str]]:
        store = self._sessions.agent(key.agent).store
        if store.find(key) is None:
            return []
        said = [entry.body.message for entry in store.open(key).tree.path if isinstance(entry.body, MessageAdded)]
        rows = [
            {"role": "user" if isinstance(message, UserMessage) else "assistant", "text": text_of(message.content)}
            for message in said
            if isinstance(message, UserMessage | AssistantMessage)
        ]
        return [
            {**row, "text": self._sessions.shared.tools.hide(row["text"][:LOG_CHARS])} for row in rows if row["text"]
        ][-limit:]

    def _is_foreign(self, key: SessionKey) -> bool:
        store = self._sessions.agent(key.agent).store
        return store.find(key) is not None and has_untrusted_content(store.open(key).tree)

    def _children(self) -> SubagentStore:
        return SubagentStore(self._sessions.services.database, self._sessions.home.clock)

    async def _open_subagents(self) -> SubagentRunner:
        if self._dispatcher.subagents is None and self._dispatcher.open_subagents is not None:
            await self._dispatcher.open_subagents()
        found = self._dispatcher.subagents
        if not isinstance(found, SubagentRunner):
            raise UsageError(NO_GATEWAY)
        return found


def _brief(child: Child) -> dict[str, Any]:
    shown = describe_child(replace(child, task=literal(child.task, 200), text=child.text[:500]))
    names = ("runId", "taskName", "label", "task", "session", "askedAt", "startedAt", "endedAt", "text")
    return {"state": child.standing, **{name: shown[name] for name in names}}
