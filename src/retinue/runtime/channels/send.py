"""Messages that do not answer one: those that agents send with a tool, and notifications of the owner."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import derived_uuid
from retinue.core.envelope import Inbound, Origin, Outbound, OutgoingMessage, PeerKind, Source
from retinue.core.errors import UsageError
from retinue.core.events import TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey, SessionKind
from retinue.dispatch.admission import is_owner
from retinue.dispatch.router import may_send
from retinue.runtime.agents.chats import find_account, max_media_bytes
from retinue.runtime.channels.delivery import attach_media, make_outgoing
from retinue.runtime.channels.routing import find_destination, reachable
from retinue.runtime.turns.sessions import Sessions
from retinue.storage.files import Root
from retinue.toolkit.message import Order

_PRIVATE = frozenset({SessionKind.MAIN, SessionKind.DIRECT})


class ChatMessageSender(Struct, frozen=True):
    """Sends messages of agents to the chats of channels."""

    sessions: Sessions

    def here(self, session: SessionKey, run: RunId) -> Origin | None:
        return self.sessions.services.inbox.origin_of(session, run)

    def address(self, channel: str | None, account: str | None) -> tuple[str, str]:
        known = reachable(self.sessions.home)
        for name, each in known:
            if channel in (None, name) and account in (None, each):
                return name, each
        names = ", ".join(f"{name}/{each}" for name, each in known) or "none"
        raise UsageError(f"There is no such channel and account. Available: {names}.")

    def reaches_owner(self, to: Origin) -> bool:
        return to.kind is PeerKind.DIRECT and is_owner(to, self.sessions.home.config.commands.owner_allow_from)

    def send(self, order: Order, session: SessionKey, files: Root) -> str:
        sessions, to = self.sessions, order.to
        found = find_account(sessions.home, to.channel, to.account)
        if found is None or not found.can_send:
            raise UsageError(f"{to.channel}/{to.account} cannot send: it is disabled or has no webhookUrl.")
        target = find_destination(sessions.home.config, to).session
        policy = sessions.home.config.session.send_policy
        if not may_send(policy, target, to.channel, to.kind):
            raise UsageError(f"`session.sendPolicy` does not allow messages to {to.peer}.")
        able = found.capabilities
        if order.emoji is not None:
            if not able.reactions:
                raise UsageError(f"{to.channel}/{to.account} cannot show reactions.")
            sessions.services.outbox.put(
                [OutgoingMessage(order.key, to, reaction=order.emoji, reply_to=order.reply_to)]
            )
            return "The reaction is queued."
        limit = max_media_bytes(found.channel, sessions.home.config.agents.defaults)
        attached, lost = ((), ()) if not able.media else attach_media(files, order.media, limit)
        media, links = tuple(attached), order.loads_links
        messages = make_outgoing(
            order.key, to, order.text, able, media=media, reply_to=order.reply_to, loads_links=links
        )
        if messages and able.buttons and order.buttons:
            messages = (*messages[:-1], replace(messages[-1], buttons=order.buttons))
        sessions.services.outbox.put(messages)
        return " ".join(("The message is queued.", *lost))


class OwnerChat(Struct, frozen=True):
    """The target of a notification: a session, and a chat of a channel. Without a chat it waits in the session."""

    session: SessionKey
    origin: Origin | None = None

    @property
    def is_direct(self) -> bool:
        """Return whether it is a direct chat on a channel."""
        if self.origin is not None:
            return self.origin.kind is PeerKind.DIRECT
        return self.session.kind is SessionKind.DIRECT


def find_chat(
    sessions: Sessions, agent: AgentId, channel: str | None = None, to: str | None = None, account: str | None = None
) -> OwnerChat:
    """Return the chat with a recipient; if none is named, the direct chat in which the owner wrote last.

    `to` is a person; `group:<id>` or `channel:<id>` is a group chat. Raises `UsageError` if there is no such chat.
    """
    if channel is not None and to is not None:
        return _named_chat(sessions, agent, to, *ChatMessageSender(sessions).address(channel, account))
    chat = next(_owner_chats(sessions, agent, channel), None)
    if chat is None and channel is not None:
        raise UsageError(f"The owner has not written on {channel} yet, and no recipient (`to`) is set.")
    chat = chat or OwnerChat(SessionKey.main(agent))
    if chat.origin is None or account is None:
        return chat
    _, known = ChatMessageSender(sessions).address(chat.origin.channel, account)
    return replace(chat, origin=replace(chat.origin, account=known))


def notify(sessions: Sessions, chat: OwnerChat, answer: Outbound, label: str, source: Source) -> None:
    """Store a notification for a chat until it is delivered; `label` describes it.

    The answer and the chat determine its run, so that it is not sent again if a power failure undid that it was stored.
    """
    inbound = Inbound(label, chat.session, owner=False, channel=source.value, source=source, origin=chat.origin)
    news = replace(
        answer,
        run=RunId(derived_uuid(f"notify:{answer.run}:{chat.session}:{chat.origin}:{label}")),
        session=chat.session,
        status=TurnStatus.OK,
        text=answer.text or answer.error or "",
        error=None,
    )
    sessions.services.inbox.post(inbound, news)


def _named_chat(sessions: Sessions, agent: AgentId, to: str, channel: str, account: str) -> OwnerChat:
    kind, _, peer = to.partition(":")
    if kind not in tuple(PeerKind) or not peer:
        kind, peer = PeerKind.DIRECT, to
    origin = Origin(channel, account, PeerKind(kind), peer)
    found = find_destination(sessions.home.config, origin)
    own = SessionKey.parse(f"agent:{agent}:{channel}:{kind}:{peer}")
    return OwnerChat(found.session if found.route.agent == agent else own, origin)


def _owner_chats(sessions: Sessions, agent: AgentId, channel: str | None) -> Iterator[OwnerChat]:
    """Return the direct chats in which the owner wrote, latest first; notifications go to no one else."""
    spoken = [
        (session.last_interaction_at, session.key.text, session.key)
        for session in sessions.agent(agent).store.list()
        if session.key.kind in _PRIVATE and session.last_interaction_at is not None
    ]
    for _, _, key in sorted(spoken, reverse=True):
        last = sessions.services.inbox.last_spoken(key)
        if last is None and key.kind is SessionKind.DIRECT and not _is_owners(sessions, key):
            continue
        origin = replace(last.origin, message_id=None) if last is not None and last.origin is not None else None
        if channel in (None, origin.channel if origin else key.channel):
            yield OwnerChat(key, origin)


def _is_owners(sessions: Sessions, key: SessionKey) -> bool:
    origin = Origin(key.channel or "", key.account or "", PeerKind.DIRECT, key.peer or "")
    return is_owner(origin, sessions.home.config.commands.owner_allow_from)
