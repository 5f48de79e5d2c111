"""What is kept of conversations, reached without starting one: sessions, and the secrets to keep out of their texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from retinue.config.secrecy import is_secret
from retinue.context.prompt.report import PromptReport
from retinue.core.keys import DEFAULT_AGENT, AgentId, SessionKey
from retinue.providers.profiles import ProfileFile
from retinue.runtime.foundation import Foundation
from retinue.runtime.rooms import locate_workspace
from retinue.security.secrets import EnvSecret, Redactor
from retinue.sessions.entries import Noted
from retinue.sessions.store import SessionStore
from retinue.sessions.tail import read_whole

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


def make_redactor(foundation: Foundation) -> Redactor:
    """Takes out of a text every secret at hand: stored, configured or in the environment.

    Secrets behind a program or a keyring are left to the redactor's shapes: fetching them may ask the person.
    """
    environment = foundation.environment
    redactor = Redactor(value for name, value in environment.items() if is_secret((name,)))
    for value in _secrets_in(foundation.plain_config, environment):
        redactor.hide(value)
    for agent in {DEFAULT_AGENT, *foundation.config.agents.ids}:
        for profile in ProfileFile(foundation.home.agent_dir(agent)).profiles():
            match profile.secret:
                case str():
                    redactor.hide(profile.secret)
                case EnvSecret(id=name):
                    redactor.hide(environment.get(name, ""))
    return redactor


def _secrets_in(data: object, environment: Mapping[str, str], name: str = "") -> Iterator[str]:
    """The secrets in a configuration: texts under a telling name, and variables that are referred to."""
    match data:
        case str() if is_secret((name,)):
            yield data
        case EnvSecret(id=variable) | {"source": "env", "id": str(variable)}:
            yield environment.get(variable, "")
        case dict():
            below: dict[Any, Any] = data
            for key, value in below.items():
                yield from _secrets_in(value, environment, str(key))
        case list() | tuple():
            for value in data:
                yield from _secrets_in(value, environment, name)


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
