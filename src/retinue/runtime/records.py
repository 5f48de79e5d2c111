"""What is kept of conversations, reached without starting one."""

from __future__ import annotations

from retinue.context.prompt.report import PromptReport
from retinue.core.keys import AgentId, SessionKey
from retinue.runtime.foundation import Foundation
from retinue.runtime.rooms import locate_workspace
from retinue.sessions.entries import Noted
from retinue.sessions.jsonl.tail import read_whole
from retinue.sessions.store import SessionStore

PROMPT_SENT = "retinue:prompt"
"""The entry that keeps what a prompt was made of."""


def open_sessions(foundation: Foundation, agent: AgentId) -> SessionStore:
    """The sessions of an agent; creates nothing until it is asked for something."""
    return SessionStore(
        foundation.home.sessions(agent),
        foundation.clock,
        durable=foundation.config.session.durability == "power",
        cwd=str(locate_workspace(foundation, agent)),
    )


def sent_prompts(foundation: Foundation, key: SessionKey) -> list[PromptReport]:
    """The prompts that a session was sent, oldest first; one for each time that something in them changed."""
    session = open_sessions(foundation, key.agent).find(key)
    if session is None:
        return []
    _, tree = read_whole(foundation.home.sessions(key.agent) / f"{session.id}.jsonl")
    return [
        PromptReport.from_json(entry.body.data)
        for entry in tree.path
        if isinstance(entry.body, Noted) and entry.body.kind == PROMPT_SENT
    ]
