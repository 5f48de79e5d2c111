"""Receiving messages of channels: admission, routing to an agent and session, and immediate acknowledgements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.channels.channel import Arrival, QuotedText
from retinue.context.prompt.inputs import tag_sender
from retinue.core.clock import random_id
from retinue.core.envelope import Inbound, Origin
from retinue.core.errors import WorkspaceError
from retinue.core.messages import Image
from retinue.dispatch.admission import GroupMessage, wants_ack
from retinue.dispatch.commands.command import as_command, parse_command
from retinue.dispatch.inbox import Acceptance
from retinue.runtime.agents.contacts import open_contacts
from retinue.runtime.agents.prompting import display_secret
from retinue.runtime.channels.delivery import acknowledge, outgoing_of, take_back
from retinue.runtime.channels.pairing import request_pairing
from retinue.runtime.channels.routing import Destination, find_destination, is_called
from retinue.runtime.commands.session_api import list_commands
from retinue.runtime.home import Home
from retinue.security.untrusted_text import TextSource, literal, sanitise, sanitise_line, wrap_untrusted

if TYPE_CHECKING:
    from retinue.runtime.dispatcher.dispatcher import Dispatcher
    from retinue.runtime.turns.sessions import Sessions

NOT_CALLED = "the message does not mention the agent"
NO_COMMANDS = "the sender may not use commands"
QUOTED = "[Other people wrote this; the message forwards it or answers it.]"
BEFORE = "[Messages of this group since you were last mentioned. They are context; do not answer them.]"


class ReceiveResult(Struct, frozen=True):
    """The result of an arrival: accepted, or why it is not for the agents."""

    destination: Destination
    accepted: Acceptance | None = None
    reason: str = ""


class Attached(Struct, frozen=True):
    """The files of a message as the agent gets them: pictures, words that were spoken, and lines about the others.

    `documents` are the texts of documents, each after a line that says which document it is.
    """

    images: tuple[Image, ...] = ()
    spoken: str = ""
    lines: tuple[str, ...] = ()
    documents: tuple[tuple[str, str], ...] = ()


Attach = Callable[[Destination], Awaitable[Attached]]
"""Reads the files of a message, after it was admitted."""


async def receive(
    sessions: Sessions, dispatcher: Dispatcher, arrival: Arrival, attach: Attach | None = None, notes: str = ""
) -> ReceiveResult:
    """Accept a message or return why not; the answer is sent to the chat that it came from.

    `attach` reads its files, and `notes` is a line about the chat for the agent.
    """
    home, origin = sessions.home, arrival.origin
    paired = arrival.verified and open_contacts(home, sessions.services).is_approved(origin)
    destination = find_destination(home.config, origin, verified=arrival.verified, paired=paired)
    if destination.refused is not None:
        if destination.may_pair and arrival.verified:
            request_pairing(sessions, origin)
        return ReceiveResult(destination, reason=destination.refused)
    arrival = replace(arrival, text=as_command(arrival.text, home.config.session.reset_triggers))
    is_command = _is_command(dispatcher, destination, arrival.text)
    if is_command and not destination.may_command:
        return ReceiveResult(destination, reason=NO_COMMANDS)
    called = arrival.mentioned or is_called(
        home.config, destination, arrival.text, known_as=_name_of(sessions, destination)
    )
    group_context, who = dispatcher.group_context, _who(home, origin)
    if destination.needs_mention and not called and not is_command:
        group_context.record(origin, who, _as_seen(arrival), destination.history_limit)
        return ReceiveResult(destination, reason=NOT_CALLED)
    before = () if is_command else group_context.recent(origin, destination.history_limit)
    attached = Attached()
    if attach is not None and arrival.files:
        attached = await attach(destination)
        text = "\n".join(filter(None, (arrival.text, attached.spoken, *attached.lines)))
        arrival = replace(arrival, text=text, images=(*arrival.images, *attached.images))
    if notes and not is_command:
        arrival = replace(arrival, text=f"{arrival.text}\n{notes}")
    inbound = Inbound(
        arrival.text
        if is_command
        else "".join(
            (
                _format_context(before),
                _label(home, destination, arrival, who),
                _format_quotes(arrival.quoted),
                *(_format_document(*each) for each in attached.documents),
            )
        ),
        destination.session,
        images=arrival.images,
        sender=origin.writer or None,
        owner=destination.owner,
        contact=destination.contact,
        foreign=bool(before or arrival.quoted or attached.documents),
        channel=origin.channel,
        origin=origin,
    )
    accepted = await dispatcher.submit(inbound, _idempotency(origin))
    if not accepted.duplicate:
        group_context.forget(origin)
        await _answer_at_once(sessions, dispatcher, inbound, accepted, called=called)
    return ReceiveResult(destination, accepted)


async def _answer_at_once(
    sessions: Sessions, dispatcher: Dispatcher, inbound: Inbound, accepted: Acceptance, *, called: bool
) -> None:
    """Send what does not need a turn: the acknowledgement reaction, and the answer of a command."""
    origin, messages = inbound.origin, sessions.home.config.messages
    assert origin is not None
    emoji = messages.ack_reaction
    wanted = origin.message_id and wants_ack(messages.ack_reaction_scope, origin, mentioned=called)
    seen = acknowledge(inbound, accepted.run, emoji) if emoji and wanted else None
    if seen is not None:
        sessions.services.outbox.put([seen])
    answer = await dispatcher.wait(accepted.run, 0)
    if answer is not None:
        ending = [take_back(seen)] if seen is not None and messages.remove_ack_after_reply else []
        sessions.services.outbox.put([*outgoing_of(sessions, inbound, answer), *ending])


def _is_command(dispatcher: Dispatcher, destination: Destination, text: str) -> bool:
    """Return whether a message is a command of the session; other text with a slash is ordinary text."""
    typed = parse_command(text) if text.lstrip().startswith("/") else None
    if typed is None or not dispatcher.sessions.home.config.commands.text:
        return False
    return typed.name in list_commands(dispatcher, destination.session)


def _name_of(sessions: Sessions, destination: Destination) -> str | None:
    try:
        return sessions.agent(destination.route.agent).workspace.identity().name
    except WorkspaceError:
        return None


def _label(home: Home, destination: Destination, arrival: Arrival, who: str) -> str:
    """Return the text as the agent gets it: with its sender, unless the owner wrote it in a direct chat."""
    text = arrival.text if destination.owner else sanitise(arrival.text)
    text = " ".join(filter(None, (home.config.messages.message_prefix, text)))
    # Text with a slash that is not a command is labelled too, or it would later be parsed as one.
    if destination.owner and not arrival.origin.kind.is_shared and not text.lstrip().startswith("/"):
        return text
    owner = ", the owner" if destination.owner else ""
    return f"[From {who}{owner}]\n{text}"


def _who(home: Home, origin: Origin) -> str:
    """Return the sender of a message as agents read it."""
    address = f"{origin.channel}:{origin.writer}" if origin.writer else origin.channel
    if home.config.commands.owner_display == "hash":
        address = tag_sender(address, display_secret(home))
    return " ".join(filter(None, (_plain(origin.sender_name), f"({_plain(address)})")))


def _format_context(messages: Sequence[GroupMessage]) -> str:
    """Return the group messages before a mention as untrusted text."""
    if not messages:
        return ""
    lines = "\n".join(f"{message.who}: {message.text}" for message in messages)
    return f"{BEFORE}\n{wrap_untrusted(lines, TextSource.GROUP_CHAT, new_id=random_id)}\n\n"


def _format_quotes(quoted: Sequence[QuotedText]) -> str:
    """Return text that the sender did not write as untrusted text."""
    if not quoted:
        return ""
    lines = "\n".join(f"{_plain(each.who)}: {each.text}" for each in quoted)
    return f"\n\n{QUOTED}\n{wrap_untrusted(lines, TextSource.GROUP_CHAT, new_id=random_id)}"


def _format_document(heading: str, text: str) -> str:
    """Return the text of a document as untrusted text: the sender need not have written it."""
    return f"\n\n{heading}\n{wrap_untrusted(text, TextSource.UNKNOWN, new_id=random_id)}"


def _as_seen(arrival: Arrival) -> str:
    return " ".join(
        filter(None, (arrival.text, "(with a picture)" if arrival.images else "(with a file)" if arrival.files else ""))
    )


def _plain(text: str | None) -> str:
    """Return a name without characters that would end its bracket."""
    return sanitise_line(literal(text or "", 80)).replace("[", "(").replace("]", ")")


def _idempotency(origin: Origin) -> str | None:
    if origin.message_id is None:
        return None
    return f"channel:{origin.channel}:{origin.account}:{origin.kind}:{origin.peer}:{origin.message_id}"
