"""What a sub-agent takes over from whoever starts it: how much it reasons, with which model, and what it knows."""

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
from retinue.security.escaping import literal
from retinue.sessions.entries import Body, ModelChanged, SettingChanged, ThinkingChanged
from retinue.sessions.session import SPAWNED_BY, WORKS_IN, Session, working_folder
from retinue.sessions.tree import fork_entries, messages_in
from retinue.toolkit.files.paths import is_control_path, locate_in_workspace

_CONTROLLING = ("handler.py", "hook/handler.py")
"""What would be a control file in a folder that decides by its name what runs; seen from inside, it would not be."""


class SpawnRefused(UsageError):
    """A sub-agent was not started; the message says why."""


class ChildSetup(Struct, frozen=True):
    """What a child's session begins with, the model that was asked for, and what the parent should know about it."""

    bodies: tuple[Body, ...]
    model: str | None
    notes: tuple[str, ...]


def prepare_child(sessions: Sessions, order: SpawnOrder, parent: SessionKey, child: SessionKey) -> ChildSetup:
    """Decide what a child begins with; raises `SpawnRefused` for what cannot be had."""
    agent, session = child.agent, sessions.agent(parent.agent).store.peek(parent)
    notes: list[str] = []
    bodies: list[Body] = [SettingChanged(SPAWNED_BY, parent.text)]
    folder = _folder(sessions, order, working_folder(session) if agent == parent.agent else "", child)
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
    """The folder of its workspace that a child is kept to: the one asked for, inside the one its parent is kept to."""
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
    """The parent's conversation so far; nothing where it is too long to be handed over."""
    copied = fork_entries(sessions.agent(parent.agent).store.open(parent).tree)
    most, tokens = sessions.home.config.session.parent_fork_max_tokens, estimate(messages_in(copied))
    if not most or tokens <= most:
        return copied
    notes.append(
        f"This conversation is about {tokens:,} tokens long, more than the {most:,} of session.parentForkMaxTokens: "
        "the sub-agent does not know it. Steer it with what it needs."
    )
    return ()


def _reasoning(sessions: Sessions, order: SpawnOrder, agent: AgentId, parent: Session | None) -> ReasoningEffort | None:
    configured = sessions.home.config.agents.resolve(agent).subagents.thinking
    level = order.thinking or configured or (parent.thinking if parent else None)
    if level is not None and level not in tuple(ReasoningEffort):
        raise SpawnRefused(f"'{literal(level, 40)}' is none of: {', '.join(ReasoningEffort)}.")
    return ReasoningEffort(level) if level else None


def _wanted_model(sessions: Sessions, order: SpawnOrder, agent: AgentId, notes: list[str]) -> str | None:
    """The model that was asked for, where it is one; another word is no reason not to start."""
    if order.model is None:
        return None
    access = sessions.agent(agent).access
    try:
        ref = access.resolve(order.model)
        access.providers.endpoint(ref.provider)
    except (UsageError, ConfigError) as error:
        notes.append(f"The model '{literal(order.model, 60)}' cannot be had, so the usual one works: {error}")
        return None
    return str(ref)
