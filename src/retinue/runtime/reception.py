"""What somebody is told who begins to talk in a session."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from retinue.core.api import Display, Greeting
from retinue.core.envelope import Inbound
from retinue.runtime.conversation import Conversation
from retinue.runtime.models import NO_MODEL
from retinue.runtime.rooms import NOT_OURS

TINY_WINDOW = 16_384


async def make_greeting(conversation: Conversation) -> Greeting:
    """Who answers, where it lives, and with which model."""
    parts = conversation.parts
    identity = parts.room.identity()
    session = parts.store.find(conversation.key)
    choice = await parts.access.choose(session.model if session else None)
    greeting = Greeting(
        name=" ".join(filter(None, (identity.emoji, identity.name or "Retinue"))),
        workspace=str(parts.room.root.path),
        messages=session.messages if session else 0,
        caution="" if parts.room.trusted else NOT_OURS,
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


def choose_display(conversation: Conversation) -> Display:
    """How the session wants its turns shown: what was chosen in it, else what is configured."""
    session = conversation.parts.store.find(conversation.key)
    settings = conversation.parts.room.settings
    reasoning = (session.reasoning if session else None) or settings.reasoning_default
    return Display(reasoning != "off", (session.verbose if session else None) or settings.verbose_default)


def list_commands(conversation: Conversation) -> Sequence[str]:
    """The names of the slash commands, those of skills included."""
    from retinue.runtime.desk import ConversationDesk

    desk = ConversationDesk(conversation, Inbound("", conversation.key))
    return (*(command.name for command in desk.commands()), *desk.skill_commands())
