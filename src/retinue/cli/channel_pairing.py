"""`retinue channels pairing`: decisions about the people who write on chat services."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, open_state, pass_invocation, table

if TYPE_CHECKING:
    from retinue.dispatch.contacts import Contact


@click.group(cls=Group)
def pairing() -> None:
    """Decide about people who wrote without being listed. Their codes are valid for an hour."""


@pairing.command("list")
@pass_invocation
def list_contacts(invocation: Invocation) -> None:
    """List the people who wait, and those who were approved or rejected."""
    from retinue.dispatch.contacts import ContactStore

    home = invocation.load_home()
    with open_state(home) as database:
        found = ContactStore(database, home.clock).list()
    rows = [(each.state, each.address, each.name, each.code if each.state == "waiting" else "") for each in found]
    empty = "Nobody has asked. People who write directly get a code if `dmPolicy` is `pairing`."
    invocation.show([_contact_data(each) for each in found], lambda: table(rows) if rows else empty)


@pairing.command("approve")
@click.argument("code")
@click.option("--owner", is_flag=True, help="This person is you: give all rights of the owner.")
@pass_invocation
def approve(invocation: Invocation, code: str, *, owner: bool) -> None:
    """Let a person write to the agent, as a contact."""
    from retinue.dispatch.contacts import ContactState

    contact = _decide(invocation, code, ContactState.APPROVED)
    told = f"{contact.name or contact.address} can write now."
    if owner:
        from retinue.config.edit import set_value

        owners = [*invocation.load_home().config.commands.owner_allow_from]
        if contact.address not in owners:
            set_value(invocation.home, "commands.ownerAllowFrom", json.dumps([*owners, contact.address]), os.environ)
        told = f"{contact.address} is you now: messages from there have all rights of the owner."
    invocation.show({**_contact_data(contact), "owner": owner}, told)


@pairing.command("reject")
@click.argument("code")
@pass_invocation
def reject(invocation: Invocation, code: str) -> None:
    """Refuse a person; further messages are ignored."""
    from retinue.dispatch.contacts import ContactState

    contact = _decide(invocation, code, ContactState.REJECTED)
    invocation.show(_contact_data(contact), f"{contact.name or contact.address} is refused.")


@pairing.command("remove")
@click.argument("address", metavar="CHANNEL:ID")
@pass_invocation
def remove_contact(invocation: Invocation, address: str) -> None:
    """Forget a person, who gets a new code with the next message."""
    from retinue.dispatch.contacts import ContactStore

    home = invocation.load_home()
    channel, _, sender = address.partition(":")
    with open_state(home) as database:
        ContactStore(database, home.clock).remove(channel, sender)
        home.audit.record("contact_removed", "cli", {"address": address})
    invocation.show({"address": address, "removed": True}, f"{address} is forgotten.")


def _decide(invocation: Invocation, code: str, state: Any) -> Contact:
    from retinue.dispatch.outbox import Outbox
    from retinue.runtime.agents.contacts import decide_contact

    home = invocation.load_home()
    with open_state(home) as database:
        return decide_contact(home, database, Outbox(database, home.clock, home.paths.sent_log), code, state, "cli")


def _contact_data(contact: Contact) -> dict[str, Any]:
    return {
        "address": contact.address,
        "channel": contact.channel,
        "sender": contact.sender,
        "name": contact.name,
        "state": contact.state.value,
        "code": contact.code if contact.state == "waiting" else None,
        "askedAt": contact.asked_at.isoformat(),
        "decidedBy": contact.decided_by,
    }
