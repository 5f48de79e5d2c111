"""Channel accounts as people see them: their state, a check of their credentials, and a message that is sent now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct

from retinue.channels.channel import AccountIdentity, ServiceChannel
from retinue.core.clock import format_moment, random_id
from retinue.core.envelope import Origin, PeerKind
from retinue.core.errors import UsageError
from retinue.dispatch.channel_accounts import ChannelAccountStore, ListenerState
from retinue.runtime.agents.chats import AccountSettings, find_account, list_accounts
from retinue.runtime.channels.delivery import make_outgoing
from retinue.runtime.channels.open_channels import make_channel
from retinue.security.secrets import Secrets
from retinue.storage.process_locks import find_instance

if TYPE_CHECKING:
    from retinue.dispatch.outbox import Outbox
    from retinue.runtime.home import Home
    from retinue.storage.database import Database

WAIT_SECONDS = 20.0
_WAITING = "SELECT channel, account, count(*) FROM outbox WHERE state = 'waiting' GROUP BY channel, account"


class AccountFacts(Struct, frozen=True, rename="camel"):
    """The state of an account; `lag` is how old the last message was when it was stored, in seconds."""

    channel: str
    account: str
    state: str
    position: str | None = None
    lag: float | None = None
    error: str | None = None
    heard_at: str | None = None
    waiting: int = 0
    """How many messages wait to be sent."""


def describe_accounts(home: Home, database: Database) -> list[AccountFacts]:
    """Return the state of every enabled account."""
    store = ChannelAccountStore(database, home.clock)
    runs = find_instance(home.paths) is not None
    rows = database.read(
        "SELECT channel, account, count(*) FROM outbox WHERE state = 'waiting' GROUP BY channel, account"
    )
    waiting = {(row[0], row[1]): int(row[2]) for row in rows}
    facts = []
    for channel, account in list_accounts(home):
        found, known = find_account(home, channel, account), store.find(channel, account)
        missing = found is None or found.extension is None
        state = known.state.value if known is not None and runs else ListenerState.STOPPED.value
        error = known.error if known is not None else None
        if missing:
            state, error = ListenerState.FAILED.value, f"No enabled plugin has the channel '{channel}'."
        facts.append(
            AccountFacts(
                channel,
                account,
                state if channel != "http" or missing else ("connected" if runs else "stopped"),
                known.position if known is not None else None,
                known.lag if known is not None else None,
                error if state != ListenerState.CONNECTED else None,
                format_moment(known.heard_at) if known is not None and known.heard_at else None,
                waiting.get((channel, account), 0),
            )
        )
    return facts


def pick_account(home: Home, channel: str, account: str | None) -> AccountSettings:
    """Return an account; raise `UsageError` if there is none."""
    names = [name for known, name in list_accounts(home) if known == channel]
    if not names or (account is not None and account not in names):
        every = ", ".join(f"{known}/{name}" for known, name in list_accounts(home)) or "none"
        wanted = f"{channel}/{account}" if account else channel
        raise UsageError(f"There is no account {wanted}. Accounts: {every}. Add one: `retinue channels add {channel}`.")
    found = find_account(home, channel, account or names[0])
    if found is None or found.extension is None:
        raise UsageError(f"No enabled plugin has the channel '{channel}'.")
    return found


async def identify_account(home: Home, found: AccountSettings) -> AccountIdentity:
    """Check the credentials of an account with its service."""
    channel = make_channel(home, found, Secrets(home.environment, home.redactor).resolve)
    if not isinstance(channel, ServiceChannel):
        return AccountIdentity(found.name, found.name)
    try:
        return await channel.identify()
    finally:
        await channel.close()


def queue_message(outbox: Outbox, found: AccountSettings, kind: str, peer: str, text: str) -> list[str]:
    """Store a message for sending; returns the keys of its parts."""
    assert found.extension is not None
    to = Origin(found.extension.name, found.name, PeerKind(kind), peer)
    parts = make_outgoing(f"command:{random_id()}", to, text, found.capabilities)
    outbox.put(parts)
    return [part.key for part in parts]


async def wait_until_sent(database: Database, keys: list[str], seconds: float = WAIT_SECONDS) -> dict[str, Any]:
    """Return what became of messages: their state, the service's ids, and the last error."""
    deadline = time.monotonic() + seconds
    marks = ", ".join("?" for _ in keys)
    query = f"SELECT state, message_id, error FROM outbox WHERE key IN ({marks}) ORDER BY id"  # noqa: S608 - marks only
    while True:
        rows = list(database.read(query, tuple(keys)))
        states = {row["state"] for row in rows}
        if "waiting" not in states or time.monotonic() > deadline:
            state = "failed" if "failed" in states else "waiting" if "waiting" in states else "sent"
            error = next((row["error"] for row in rows if row["error"]), None)
            return {"state": state, "messageIds": [row["message_id"] for row in rows], "error": error}
        await anyio.sleep(0.1)
