"""The message tool: sends a message to this or another chat, or reacts to a message."""

from __future__ import annotations

import json
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.envelope import Origin, PeerKind
from retinue.core.errors import RetinueError, ToolFailed
from retinue.core.keys import RunId, SessionKey
from retinue.core.sinks import Sink
from retinue.storage.files import Root
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.taint import require_approval_if_tainted
from retinue.toolkit.web.outflow import HostApprovals, is_address, show_answer
from retinue.tools.sinks import SinkQuestion, require_approval
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument, reported_to_model


class MessageArguments(Arguments):
    action: Literal["send", "react"] = "send"
    text: str = ""
    to: str | None = argument(None, description="id of a person or group; without it this chat")
    kind: Literal["direct", "group", "channel"] = "direct"
    channel: str | None = None
    account: str | None = None
    thread: str | None = None
    media: tuple[str, ...] = argument((), description="workspace paths or URLs")
    reply_to: str | None = argument(None, description="id of a message")
    emoji: str | None = argument(None, description="for react")
    buttons: tuple[tuple[dict[str, Any], ...], ...] = ()


class Order(Struct, frozen=True):
    """A message to send and its destination; `key` is the same if the call is repeated."""

    key: str
    to: Origin
    text: str = ""
    media: tuple[str, ...] = ()
    reply_to: str | None = None
    emoji: str | None = None
    buttons: tuple[tuple[dict[str, Any], ...], ...] = ()
    loads_links: bool = True
    """Whether the chat may load what the text links to, for a preview."""


class Messenger(Protocol):
    """Sends messages to chats."""

    def here(self, session: SessionKey, run: RunId) -> Origin | None:
        """Return the chat of the message that a run answers, else the last chat of its session."""
        ...

    def address(self, channel: str | None, account: str | None) -> tuple[str, str]:
        """Return the channel and account to use; raise `UsageError` if there is none, or several and none is named."""
        ...

    def reaches_owner(self, to: Origin) -> bool:
        """Return whether a chat is a direct one with the owner."""
        ...

    def send(self, order: Order, session: SessionKey, files: Root) -> str:
        """Store a message for sending and return a sentence about it; raise `UsageError` if it cannot be sent.

        Its media are files of the folder `files`, or addresses.
        """
        ...


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the message tool if channels are available."""
    if not parts.services.reaches_channels:
        return ()

    hosts = HostApprovals()

    async def run(arguments: MessageArguments, context: ToolContext) -> ToolOutput:
        with reported_to_model(RetinueError):
            messenger = parts.services.messenger()
            order, elsewhere = _make_order(arguments, context, messenger)
            if elsewhere and not context.owner:
                raise ToolFailed("Messages to other chats are allowed only in a turn of the owner.")
            if elsewhere and not messenger.reaches_owner(order.to):
                await _require_approval(order, context)
            is_free = not context.asks_at(Sink.FETCH)
            order = replace(order, text=show_answer(order.text, context), loads_links=is_free)
            for address in filter(is_address, order.media):  # the chat's service fetches it
                await hosts.require("message", address, context)
            return ToolOutput.of(messenger.send(order, context.session, context.root))

    tool = Tool(
        name="message",
        summary="Send to a chat, or react",
        description="Send a message to another chat, or react in this one. Your reply is delivered to this chat "
        "automatically; do not send it twice.",
        arguments=MessageArguments,
        run=run,
        deferred=True,
        parallel=False,
    )
    return (tool,)


async def _require_approval(order: Order, context: ToolContext) -> None:
    """Ask before a message to another person that untrusted text may have suggested, or that no person asked for."""
    facts = {"to": order.to.peer, "channel": order.to.channel, "text": order.text, "media": order.media}
    title = f"Send a message to {order.to.peer}"
    await require_approval_if_tainted(Sink.MESSAGES, "message", title, facts, context)
    if context.unattended and not context.tainted:
        because = "a schedule or hook began this turn, and nobody asked for the message"
        detail = json.dumps(facts, ensure_ascii=True, indent=2)
        notes = (f"Asked because {because}.",)
        await require_approval(SinkQuestion(Sink.MESSAGES, "message", title, detail, because, notes=notes), context)


def _make_order(arguments: MessageArguments, context: ToolContext, messenger: Messenger) -> tuple[Order, bool]:
    """Return what to send, and whether it goes to another chat than the one of this session."""
    here = messenger.here(context.session, context.run)
    if arguments.to is None:
        if here is None:
            raise ToolFailed("This session has no chat. Give a recipient with `to`.")
        target = here
    else:
        channel, account = messenger.address(arguments.channel, arguments.account)
        target = Origin(channel, account, PeerKind(arguments.kind), arguments.to, thread=arguments.thread)
    reply_to = arguments.reply_to
    if arguments.action == "react":
        reply_to = reply_to or target.message_id
        if not arguments.emoji or not reply_to:
            raise ToolFailed("`react` needs `emoji` and `replyTo`, the id of the message.")
    elif not arguments.text.strip() and not arguments.media:
        raise ToolFailed("There is nothing to send. Give `text` or `media`.")
    order = Order(
        key=f"{context.run}:{context.call_id}",
        to=target,
        text=arguments.text,
        media=arguments.media,
        reply_to=reply_to,
        emoji=arguments.emoji if arguments.action == "react" else None,
        buttons=arguments.buttons,
    )
    return order, here is None or _chat(here) != _chat(target)


def _chat(origin: Origin) -> tuple[str, str, str, str]:
    return origin.channel, origin.account, origin.kind.value, origin.peer
