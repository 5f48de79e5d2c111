"""Messages that agents send to chats: through the outbox, under the same rules as answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import UsageError
from retinue.core.keys import RunId, SessionKey
from retinue.core.origin import Origin
from retinue.core.outgoing import OutgoingMessage
from retinue.dispatch.router import may_send
from retinue.runtime.channels.delivery import (
    attach_media,
    capabilities_of,
    find_account,
    make_outgoing,
    max_media_bytes,
)
from retinue.runtime.channels.routing import find_destination, reachable
from retinue.toolkit.message import Order

if TYPE_CHECKING:
    from retinue.runtime.turns.sessions import Sessions


class ChatMessageSender(Struct, frozen=True):
    """Sends messages of agents to the chats of channels."""

    sessions: Sessions

    def here(self, session: SessionKey, run: RunId) -> Origin | None:
        return self.sessions.services.inbox.origin_of(session, run)

    def address(self, channel: str | None, account: str | None) -> tuple[str, str]:
        known = reachable(self.sessions.home.config)
        for name, each in known:
            if channel in (None, name) and account in (None, each):
                return name, each
        names = ", ".join(f"{name}/{each}" for name, each in known) or "none"
        raise UsageError(f"There is no such channel and account. Available: {names}.")

    def send(self, order: Order, session: SessionKey) -> str:
        sessions, to = self.sessions, order.to
        found = find_account(sessions, to.channel, to.account)
        if found is None or found[1].webhook_url is None:
            raise UsageError(f"{to.channel}/{to.account} cannot send: it is disabled or has no webhookUrl.")
        target = find_destination(sessions.home.config, to).session
        policy = sessions.home.config.session.send_policy
        if not may_send(policy, target, to.channel, to.kind):
            raise UsageError(f"`session.sendPolicy` does not allow messages to {to.peer}.")
        able = capabilities_of(*found)
        if order.emoji is not None:
            if not able.reactions:
                raise UsageError(f"{to.channel}/{to.account} cannot show reactions.")
            sessions.services.outbox.put(
                [OutgoingMessage(order.key, to, reaction=order.emoji, reply_to=order.reply_to)]
            )
            return "The reaction is queued."
        most = max_media_bytes(found[0], sessions.home.config.agents.defaults)
        attached, lost = (
            ((), ())
            if not able.media
            else attach_media(sessions.agent(session.agent).workspace.root, order.media, most)
        )
        messages = make_outgoing(order.key, to, order.text, able, media=tuple(attached), reply_to=order.reply_to)
        if messages and able.buttons and order.buttons:
            messages = (*messages[:-1], replace(messages[-1], buttons=order.buttons))
        sessions.services.outbox.put(messages)
        return " ".join(("The message is queued.", *lost))
