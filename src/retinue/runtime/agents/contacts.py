"""The people that the owner approved, or decides about, with a pairing code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.envelope import Origin, OutgoingMessage, PeerKind
from retinue.dispatch.contacts import Contact, ContactState, ContactStore

if TYPE_CHECKING:
    from retinue.dispatch.outbox import Outbox
    from retinue.runtime.agents.agent import Services
    from retinue.runtime.home import Home
    from retinue.storage.database import Database

WELCOME = "You can write to this assistant now."


def open_contacts(home: Home, services: Services) -> ContactStore:
    """Return the contacts of a home."""
    return ContactStore(services.database, home.clock)


def decide_pairing(home: Home, services: Services, code: str, state: ContactState, by: str) -> Contact:
    """Approve or reject the person with a code; raise `UsageError` if no valid request has it."""
    return decide_contact(home, services.database, services.outbox, code, state, by)


def decide_contact(home: Home, database: Database, outbox: Outbox, code: str, state: ContactState, by: str) -> Contact:
    """Approve or reject the person with a code, and say so to a person who was approved."""
    contact = ContactStore(database, home.clock).decide(code, state, by)
    kind = "contact_approved" if state is ContactState.APPROVED else "contact_rejected"
    home.audit.record(kind, by, {"address": contact.address, "name": contact.name})
    if state is ContactState.APPROVED:
        to = Origin(contact.channel, contact.account, PeerKind.DIRECT, contact.sender)
        outbox.put([OutgoingMessage(f"pairing:{contact.channel}:{contact.code}:welcome", to, WELCOME)])
    return contact
