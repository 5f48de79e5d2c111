"""The stored sessions and prompts of an agent, without opening it."""

from __future__ import annotations

from retinue.context.prompt.report import PromptReport
from retinue.core.keys import AgentId, SessionKey
from retinue.runtime.agents.agent import locate_workspace
from retinue.runtime.home import Home
from retinue.sessions.entries import Noted
from retinue.sessions.store import SessionStore
from retinue.sessions.transcript import read_whole

PROMPT_SENT = "retinue:prompt"
"""The kind of transcript entry that stores the inputs of a prompt."""


def open_sessions(home: Home, agent: AgentId) -> SessionStore:
    """Return the sessions of an agent; creates nothing until a session is used."""
    return SessionStore(
        home.paths.sessions(agent),
        home.clock,
        durable=home.config.session.durability == "power",
        cwd=str(locate_workspace(home, agent)),
    )


def sent_prompts(home: Home, key: SessionKey) -> list[PromptReport]:
    """Return the prompts that were sent in a session, oldest first; one for each change."""
    session = open_sessions(home, key.agent).find(key)
    if session is None:
        return []
    _, tree = read_whole(home.paths.sessions(key.agent) / f"{session.id}.jsonl")
    return [
        PromptReport.from_json(entry.body.data)
        for entry in tree.path
        if isinstance(entry.body, Noted) and entry.body.kind == PROMPT_SENT
    ]
