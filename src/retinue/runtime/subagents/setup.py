"""The setup of a sub-agent: its reasoning effort, model, folder and history, derived from its parent."""

from __future__ import annotations

import posixpath

from msgspec import Struct

from retinue.context.measure import estimate
from retinue.core.errors import ConfigError, StorageError, ToolFailed, UsageError
from retinue.core.keys import AgentId, SessionKey
from retinue.core.model import ReasoningEffort
from retinue.dispatch.subagents import SpawnOrder
from retinue.runtime.agents.confinement import working_root
from retinue.runtime.turns.sessions import Sessions
from retinue.sandbox.confinement import SandboxUnavailable
from retinue.security.untrusted_text import literal
from retinue.sessions.entries import Body, ModelChanged, SettingChanged, ThinkingChanged
from retinue.sessions.session import PERSON, SPAWNED_BY, WORKS_IN, Session, working_folder
from retinue.sessions.tree import fork_entries, messages_in
from retinue.toolkit.files.paths import is_control_path, locate_in_workspace
from retinue.toolkit.sessions import CallingSession

_CONTROLLING = ("handler.py", "hook/handler.py")
"""Names of folders that are control folders in a workspace; a session restricted to one would not see that."""


class SpawnRefused(UsageError):
    """A sub-agent was not started; the message says why."""


class ChildSetup(Struct, frozen=True):
    """The initial state of a child's session, the requested model, and notices for the parent."""

    bodies: tuple[Body, ...]
    model: str | None
    notes: tuple[str, ...]


def prepare_child(sessions: Sessions, order: SpawnOrder, caller: CallingSession, child: SessionKey) -> ChildSetup:
    """Return the setup of a child; raise `SpawnRefused` if a part of the request is not available."""
    parent, person = caller.session, caller.person
    agent, session = child.agent, sessions.agent(parent.agent).store.peek(parent)
    notes: list[str] = []
    bodies: list[Body] = [SettingChanged(SPAWNED_BY, parent.text)]
    inherited = working_folder(session) if agent == parent.agent else ""
    if person is not None:
        bodies.append(SettingChanged(PERSON, str(person)))
        inherited = inherited or person.folder
    folder = _folder(sessions, order, inherited, child)
    if folder:
        bodies.append(SettingChanged(WORKS_IN, folder))
    if order.context == "fork":
        bodies += _conversation(sessions, parent, notes)
    level = _reasoning(sessions, order, agent, session)
    if level is not None:
        bodies.append(ThinkingChanged(level))
    model = _wanted_model(sessions, order, agent, notes)
    has_own = sessions.home.config.agents.resolve(agent).subagents.model
    if model is None and not has_own and agent == parent.agent and session is not None and session.model is not None:
        bodies.append(ModelChanged(session.model))
    return ChildSetup(tuple(bodies), model, tuple(notes))


def _folder(sessions: Sessions, order: SpawnOrder, inherited: str, child: SessionKey) -> str:
    """Return the workspace folder that a child is restricted to: the requested one, inside that of its parent."""
    if not order.workspace:
        return inherited
    try:
        workspace = sessions.agent(child.agent).workspace
        with working_root(workspace, child).enter(inherited or ".") as root:
            inside = locate_in_workspace(root, order.workspace)
            root.enter(inside).close()
    except (StorageError, ToolFailed, SandboxUnavailable) as error:
        raise SpawnRefused(f"A sub-agent cannot work in '{literal(order.workspace, 80)}': {error}") from error
    folder = posixpath.normpath(posixpath.join(inherited, inside))
    if any(is_control_path(f"{folder}/{name}") for name in _CONTROLLING):
        raise SpawnRefused(f"A sub-agent cannot work in '{literal(order.workspace, 80)}': it holds control files.")
    return "" if folder == "." else folder


def _conversation(sessions: Sessions, parent: SessionKey, notes: list[str]) -> tuple[Body, ...]:
    """Return the parent's conversation; empty if it is too long to pass on."""
    copied = fork_entries(sessions.agent(parent.agent).store.open(parent).tree)
    limit, tokens = sessions.home.config.session.parent_fork_max_tokens, estimate(messages_in(copied))
    if not limit or tokens <= limit:
        return copied
    notes.append(
        f"This conversation is about {tokens:,} tokens long, more than the {limit:,} of session.parentForkMaxTokens: "
        "the sub-agent does not get it. Steer it with the facts that it needs."
    )
    return ()


def _reasoning(sessions: Sessions, order: SpawnOrder, agent: AgentId, parent: Session | None) -> ReasoningEffort | None:
    configured = sessions.home.config.agents.resolve(agent).subagents.thinking
    level = order.thinking or configured or (parent.thinking if parent else None)
    if level is not None and level not in tuple(ReasoningEffort):
        raise SpawnRefused(f"'{literal(level, 40)}' is not one of: {', '.join(ReasoningEffort)}.")
    return ReasoningEffort(level) if level else None


def _wanted_model(sessions: Sessions, order: SpawnOrder, agent: AgentId, notes: list[str]) -> str | None:
    """Return the requested model if it is available; otherwise the child starts with the default one."""
    if order.model is None:
        return None
    access = sessions.agent(agent).access
    try:
        ref = access.resolve(order.model)
        access.providers.endpoint(ref.provider)
    except (UsageError, ConfigError) as error:
        notes.append(f"The model '{literal(order.model, 60)}' is not available, so the default one is used: {error}")
        return None
    return str(ref)
