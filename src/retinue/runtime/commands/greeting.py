"""The greeting at the start of a session."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from retinue.core.api import Display, Greeting
from retinue.core.envelope import Inbound
from retinue.core.keys import SessionKey
from retinue.runtime.agents.agent import NOT_OURS
from retinue.runtime.commands.session_api import SessionApi
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.models.access import NO_MODEL
from retinue.runtime.turns.runner import SessionRunner

TINY_WINDOW = 16_384


async def make_greeting(conversation: SessionRunner) -> Greeting:
    """Return the agent, its workspace and its model for the greeting."""
    parts = conversation.parts
    identity = parts.workspace.identity()
    session = parts.store.find(conversation.key)
    choice = await parts.access.choose(session.model if session else None)
    greeting = Greeting(
        name=" ".join(filter(None, (identity.emoji, identity.name or "Retinue"))),
        workspace=str(parts.workspace.root.path),
        messages=session.messages if session else 0,
        caution="" if parts.workspace.trusted else NOT_OURS,
    )
    if choice is None:
        return replace(greeting, advice=NO_MODEL)
    return replace(
        greeting,
        model=str(choice.ref),
        because=choice.because,
        how_to_change=choice.how_to_change,
        is_tiny=choice.ref.provider == "local" and parts.access.info(choice.ref).window <= TINY_WINDOW,
    )


def choose_display(conversation: SessionRunner) -> Display:
    """Return how the turns of the session are shown: as chosen in it, else as configured."""
    session = conversation.parts.store.find(conversation.key)
    settings = conversation.parts.workspace.settings
    reasoning = (session.reasoning if session else None) or settings.reasoning_default
    return Display(reasoning != "off", (session.verbose if session else None) or settings.verbose_default)


def list_commands(dispatcher: Dispatcher, session: SessionKey) -> Sequence[str]:
    """Return the names of the slash commands, including those of skills."""
    api = SessionApi(dispatcher, dispatcher.sessions.runner(session), Inbound("", session))
    return (*(command.name for command in api.commands()), *api.skill_commands())
