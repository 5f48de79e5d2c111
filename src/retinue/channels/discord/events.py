"""Discord's events as what a channel receives. What does not have the expected form is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from retinue.channels.channel import Arrival, ButtonPress, ChatReaction, IncomingFile, QuotedText
from retinue.core.envelope import Origin, PeerKind

NAME = "discord"
THREAD_TYPES = frozenset({10, 11, 12})
COMMAND, COMPONENT = 2, 3
_MESSAGE_TYPES = frozenset({0, 19})
"""Ordinary messages and answers; the others report joins, pins and the like."""
_MENTION = re.compile(r"<@[!&]?(\d+)>")
Update = Arrival | ButtonPress | ChatReaction


class DiscordEventReader:
    """Reads the events of one bot; `parents` has the channel of each known thread, None for other channels."""

    def __init__(self, account: str, bot_id: str, *, allow_bots: bool) -> None:
        self._account = account
        self.bot_id = bot_id
        self._allow_bots = allow_bots
        self.parents: dict[str, str | None] = {}
        self.names: dict[str, str] = {}
        """The names of channels and servers."""

    def learn_channel(self, channel: Mapping[str, Any]) -> None:
        """Remember whether a channel is a thread."""
        parent = channel.get("parent_id") if channel.get("type") in THREAD_TYPES else None
        if channel.get("id"):
            self.parents[str(channel["id"])] = str(parent) if parent else None
            self.names[str(channel["id"])] = str(channel.get("name") or "")

    def read_message(self, message: Mapping[str, Any]) -> Arrival | None:
        """Read a message; None if it is not from a person."""
        try:
            author = message["author"]
            is_bot = bool(author.get("bot")) or bool(message.get("webhook_id"))
            if author["id"] == self.bot_id or (is_bot and not self._allow_bots):
                return None
            if message.get("type", 0) not in _MESSAGE_TYPES:
                return None
            return self._arrival(message, author)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def _arrival(self, message: Mapping[str, Any], author: Mapping[str, Any]) -> Arrival | None:
        text = str(message.get("content") or "")
        files = tuple(
            IncomingFile(
                str(each["url"]),
                str(each.get("filename") or "file"),
                str(each.get("content_type") or ""),
                int(each.get("size") or 0),
                is_voice=each.get("waveform") is not None,
            )
            for each in message.get("attachments") or ()
        )
        answered = message.get("referenced_message")
        answered_author = (answered or {}).get("author", {}).get("id")
        mentioned = answered_author == self.bot_id or any(
            each.get("id") == self.bot_id for each in message.get("mentions") or ()
        )
        shown = _MENTION.sub(lambda found: "" if found[1] == self.bot_id else found[0], text).strip()
        if not shown and not files and not mentioned:
            return None
        quoted: tuple[QuotedText, ...] = ()
        if answered and answered.get("content") and answered_author not in (self.bot_id, author["id"]):
            name = answered["author"].get("global_name") or answered["author"].get("username")
            quoted = (QuotedText(f"in answer to {name}", str(answered["content"])),)
        member = message.get("member") or {}
        origin = self.origin(message, author, member, str(message["id"]))
        sent_at = datetime.fromisoformat(str(message["timestamp"])).timestamp() if message.get("timestamp") else None
        return Arrival(
            origin,
            shown,
            mentioned=mentioned,
            verified=True,
            files=files,
            quoted=quoted,
            sent_at=sent_at,
        )

    def read_interaction(self, event: Mapping[str, Any]) -> Arrival | ButtonPress | None:
        """Read a command or the press of a button."""
        try:
            member = event.get("member") or {}
            author, data = member.get("user") or event["user"], event["data"]
            if event["type"] == COMPONENT:
                origin = self.origin(event, author, member, str(event["message"]["id"]))
                return ButtonPress(origin, str(data["custom_id"]), str(event["id"]))
            if event["type"] != COMMAND:
                return None
            rest = " ".join(str(each.get("value", "")) for each in data.get("options") or ())
            origin = self.origin(event, author, member, f"command-{event['id']}")
            return Arrival(origin, f"/{data['name']} {rest}".strip(), mentioned=True, verified=True)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def read_reaction(self, event: Mapping[str, Any]) -> ChatReaction | None:
        try:
            author = (event.get("member") or {}).get("user") or {"id": event["user_id"]}
            if author["id"] == self.bot_id or author.get("bot"):
                return None
            origin = self.origin(event, author, event.get("member") or {}, str(event["message_id"]))
            return ChatReaction(origin, str(event["emoji"]["name"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def origin(
        self, event: Mapping[str, Any], author: Mapping[str, Any], member: Mapping[str, Any], message_id: str
    ) -> Origin:
        chat, guild = str(event["channel_id"]), event.get("guild_id")
        parent = self.parents.get(chat)
        place = parent or chat
        name = member.get("nick") or author.get("global_name") or author.get("username")
        return Origin(
            NAME,
            self._account,
            PeerKind.CHANNEL if guild else PeerKind.DIRECT,
            place if guild else str(author["id"]),
            guild=str(guild) if guild else None,
            thread=chat if parent else None,
            sender=str(author["id"]),
            sender_name=name,
            roles=tuple(map(str, member.get("roles") or ())),
            message_id=message_id,
            peer_name=(self.names.get(place) or None) if guild else None,
            guild_name=(self.names.get(str(guild)) or None) if guild else None,
        )
