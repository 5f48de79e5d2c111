"""Slack's events, commands and presses of buttons as what a channel receives. What has another form is left out."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from retinue.channels.channel import Arrival, ButtonPress, ChatReaction, IncomingFile
from retinue.core.envelope import Origin, PeerKind

NAME = "slack"
_SUBTYPES = (None, "file_share", "thread_broadcast", "bot_message", "me_message")
_LINK = re.compile(r"<([^<>|]+)(?:\|([^<>]*))?>")
Update = Arrival | ButtonPress | ChatReaction


class SlackEventReader:
    """Reads what Slack sends to one app."""

    def __init__(self, account: str, bot_user: str, team: str, *, allow_bots: bool, commands: Collection[str]) -> None:
        self._account = account
        self._bot_user = bot_user
        self._team = team
        self._allow_bots = allow_bots
        self._commands = commands

    def read_event(self, payload: Mapping[str, Any]) -> Update | None:
        """Read the payload of an event; None if it is not for the agent."""
        event = payload.get("event")
        try:
            if isinstance(event, dict) and event.get("type") in ("message", "app_mention"):
                return self._message(event)
            if isinstance(event, dict) and event.get("type") == "reaction_added":
                return self._reaction(event)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        return None

    def read_command(self, payload: Mapping[str, Any]) -> Arrival | None:
        """Read a slash command: its first word can be a command of the agent, as in `/retinue status`."""
        text, user, chat = (str(payload.get(name) or "") for name in ("text", "user_id", "channel_id"))
        if not user or not chat:
            return None
        word = text.split(" ", 1)[0].lower()
        text = f"/{text}" if word in self._commands else text or "/help"
        origin = self._origin(chat, user, f"command-{payload.get('trigger_id', '')}", None, payload.get("user_name"))
        return Arrival(origin, text, mentioned=True, verified=True)

    def read_press(self, payload: Mapping[str, Any]) -> ButtonPress | None:
        """Read the press of a button."""
        try:
            if payload.get("type") != "block_actions":
                return None
            message, user = payload["message"], payload["user"]
            (action, *_) = payload["actions"]
            origin = self._origin(
                payload["channel"]["id"], user["id"], message["ts"], message.get("thread_ts"), user.get("name")
            )
            press = f"{payload.get('trigger_id', '')}{action.get('action_ts', '')}"
            return ButtonPress(origin, str(action["value"]), press)
        except (KeyError, TypeError, ValueError):
            return None

    def _message(self, event: Mapping[str, Any]) -> Arrival | None:
        is_bot = bool(event.get("bot_id")) or event.get("user") == self._bot_user
        if event.get("subtype") not in _SUBTYPES or (is_bot and not self._allow_bots):
            return None
        if event.get("user") == self._bot_user or not event.get("user"):
            return None
        text = str(event.get("text") or "")
        mentioned = f"<@{self._bot_user}>" in text
        files = tuple(_files(event.get("files") or ()))
        if not text and not files:
            return None
        thread = event.get("thread_ts")
        mentioned = mentioned or event.get("parent_user_id") == self._bot_user
        origin = self._origin(
            event["channel"], event["user"], event["ts"], thread, None, is_group=event.get("channel_type") == "mpim"
        )
        shown = read_text(text.replace(f"<@{self._bot_user}>", "").strip() or text)
        return Arrival(origin, shown, mentioned=mentioned, verified=True, files=files, sent_at=float(str(event["ts"])))

    def _reaction(self, event: Mapping[str, Any]) -> ChatReaction | None:
        item = event["item"]
        if item.get("type") != "message" or event.get("user") == self._bot_user:
            return None
        return ChatReaction(
            self._origin(item["channel"], event["user"], item["ts"], None, None), f":{event['reaction']}:"
        )

    def _origin(
        self, chat: str, user: str, message: str, thread: str | None, name: str | None, *, is_group: bool = False
    ) -> Origin:
        direct = chat.startswith("D")
        kind = PeerKind.DIRECT if direct else PeerKind.GROUP if is_group else PeerKind.CHANNEL
        return Origin(
            NAME,
            self._account,
            kind,
            user if direct else chat,
            team=self._team,
            thread=thread,
            sender=user,
            sender_name=name,
            message_id=message,
        )


def read_text(text: str) -> str:
    """Return a text of Slack without its markup for links, channels and escapes."""

    def show(found: re.Match[str]) -> str:
        target, label = found[1], found[2]
        if target.startswith("#"):
            return f"#{label or target[1:]}"
        if target.startswith("!"):
            return f"@{label or target[1:]}"
        if target.startswith("@"):
            return f"@{label or target[1:]}"
        return f"{label} ({target})" if label and label != target else target

    return html.unescape(_LINK.sub(show, text))


def _files(files: Iterable[Mapping[str, Any]]) -> Iterable[IncomingFile]:
    for each in files:
        address = each.get("url_private_download") or each.get("url_private")
        if address:
            media_type = str(each.get("mimetype") or "")
            is_voice = each.get("subtype") == "slack_audio"
            yield IncomingFile(
                str(address), str(each.get("name") or "file"), media_type, int(each.get("size") or 0), is_voice
            )
