"""Pairing of people who write without being listed: their code, and the owner's decision."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from retinue.core.envelope import Origin, OutgoingMessage
from retinue.core.errors import RetinueError
from retinue.dispatch.contacts import Contact, ContactState
from retinue.runtime.agents.chats import find_account
from retinue.runtime.agents.contacts import decide_pairing, open_contacts
from retinue.runtime.channels.send import find_chat

if TYPE_CHECKING:
    from retinue.runtime.turns.sessions import Sessions

log = logging.getLogger(__name__)

PRESS = "pair:"
"""The beginning of the value of a button that decides about a person."""


def request_pairing(sessions: Sessions, origin: Origin) -> None:
    """Send a code to a person who wrote directly without being listed, and show the request to the owner."""
    contact = open_contacts(sessions.home, sessions.services).ask(origin)
    if contact is None:
        return
    text = (
        f"This is a personal assistant, and you are not known to it yet. Your pairing code is {contact.code}.\n"
        f"The owner can approve you with: retinue channels pairing approve {contact.code}"
    )
    key = f"pairing:{contact.channel}:{contact.code}"
    sessions.services.outbox.put([OutgoingMessage(f"{key}:0", origin, text), *_ask_owner(sessions, contact, key)])


def decide_by_press(sessions: Sessions, value: str, by: str) -> str:
    """Carry out a press of the owner on a button about a person; returns what happened."""
    code, _, verdict = value.removeprefix(PRESS).partition(":")
    state = ContactState.APPROVED if verdict == "yes" else ContactState.REJECTED
    try:
        contact = decide_pairing(sessions.home, sessions.services, code, state, by)
    except RetinueError as error:
        return str(error)
    return f"{contact.name or contact.address}: {contact.state}"


def _ask_owner(sessions: Sessions, contact: Contact, key: str) -> list[OutgoingMessage]:
    """Return the message that shows a request in the owner's chat; none if there is no such chat."""
    home = sessions.home
    try:
        chat = find_chat(sessions, home.config.agents.default_id).origin
    except RetinueError as error:
        log.debug("the owner was not asked about %s: %s", contact.address, error)
        return []
    found = find_account(home, chat.channel, chat.account) if chat is not None else None
    if chat is None or found is None:
        return []
    who = f"{contact.name} ({contact.address})" if contact.name else contact.address
    text = f"{who} wants to write to this assistant. The code is {contact.code}."
    if not found.capabilities.buttons:
        text += f"\nDecide with: retinue channels pairing approve {contact.code}, or reject {contact.code}"
        return [OutgoingMessage(f"{key}:owner", chat, text)]
    buttons = (
        {"text": "Approve", "value": f"{PRESS}{contact.code}:yes"},
        {"text": "Reject", "value": f"{PRESS}{contact.code}:no"},
    )
    return [OutgoingMessage(f"{key}:owner", chat, text, buttons=(buttons,))]
