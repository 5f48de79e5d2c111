"""Telegram's updates as updates of a channel. What does not have the expected form is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from retinue.channels.channel import Arrival, ButtonPress, ChatReaction, IncomingFile, QuotedText
from retinue.core.envelope import Origin, PeerKind

NAME = "telegram"
KINDS = ("message", "channel_post", "callback_query", "message_reaction")
"""The kinds of updates that are requested."""
Update = Arrival | ButtonPress | ChatReaction
_CHAT_KINDS = {"private": PeerKind.DIRECT, "channel": PeerKind.CHANNEL}
_GENERAL_TOPIC = "1"


class UpdateReader:
    """Reads the updates of one bot."""

    def __init__(self, account: str, bot_id: int, username: str) -> None:
        self._account = account
        self._bot_id = bot_id
        self._mention = f"@{username}".lower()

    def read_all(self, updates: Iterable[Mapping[str, Any]]) -> list[tuple[int, Update | None]]:
        """Return the updates in order with their numbers; the pictures of an album become one message."""
        read: list[tuple[int, Update | None]] = []
        album: str | None = None
        for update in sorted(updates, key=lambda each: int(each["update_id"])):
            number, found = int(update["update_id"]), self._read(update)
            group = _mapping(update, "message").get("media_group_id")
            last = read[-1][1] if read else None
            if group and group == album and isinstance(found, Arrival) and isinstance(last, Arrival):
                text = "\n".join(filter(None, (last.text, found.text)))
                read[-1] = number, replace(last, text=text, files=(*last.files, *found.files))
            else:
                read.append((number, found))
            album = str(group) if group else None
        return read

    def _read(self, update: Mapping[str, Any]) -> Update | None:
        try:
            for kind, read in (
                ("message", self._message),
                ("channel_post", self._message),
                ("callback_query", self._press),
                ("message_reaction", self._reaction),
            ):
                if isinstance(update.get(kind), dict):
                    return read(update[kind])
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        return None

    def _message(self, message: Mapping[str, Any]) -> Arrival | None:
        sender, author = _mapping(message, "from"), _mapping(message, "sender_chat")
        if sender.get("is_bot") and not author:
            return None
        text = str(message.get("text") or message.get("caption") or "")
        entities = message.get("entities") or message.get("caption_entities") or []
        files = tuple(_files(message))
        if not text and not files:
            return None
        mentioned, text = self._mentions(text, entities)
        answered = _mapping(message, "reply_to_message")
        known = (self._bot_id, sender.get("id"))
        quoted = tuple(_quoted(message, answered if _mapping(answered, "from").get("id") not in known else {}))
        if message.get("forward_origin"):
            text = ""
        if _mapping(answered, "from").get("id") == self._bot_id and not answered.get("forum_topic_created"):
            mentioned = True
        origin = self._origin(message, author or sender, str(message["message_id"]))
        sent_at = message.get("date")
        return Arrival(
            origin,
            text,
            mentioned=mentioned,
            verified=True,
            files=files,
            quoted=quoted,
            sent_at=float(sent_at) if isinstance(sent_at, int) else None,
        )

    def _press(self, query: Mapping[str, Any]) -> ButtonPress | None:
        message = _mapping(query, "message")
        if not message or not query.get("data"):
            return None
        origin = self._origin(message, query["from"], str(message["message_id"]))
        return ButtonPress(origin, str(query["data"]), str(query["id"]))

    def _reaction(self, changed: Mapping[str, Any]) -> ChatReaction | None:
        before = {each.get("emoji") for each in changed.get("old_reaction", ())}
        fresh = [each["emoji"] for each in changed.get("new_reaction", ()) if each.get("emoji") not in before]
        author = _mapping(changed, "user") or _mapping(changed, "actor_chat")
        if not fresh or not author or author.get("is_bot"):
            return None
        return ChatReaction(self._origin(changed, author, str(changed["message_id"])), str(fresh[0]))

    def _origin(self, message: Mapping[str, Any], author: Mapping[str, Any], message_id: str) -> Origin:
        chat = message["chat"]
        kind = _CHAT_KINDS.get(str(chat["type"]), PeerKind.GROUP)
        in_topic = message.get("is_topic_message") and message.get("message_thread_id")
        topic = str(message["message_thread_id"]) if in_topic else None
        if topic is None and chat.get("is_forum"):
            topic = _GENERAL_TOPIC
        named = (author.get("first_name"), author.get("last_name"))
        return Origin(
            NAME,
            self._account,
            kind,
            str(int(chat["id"])),
            thread=topic,
            sender=str(int(author["id"])) if author else None,
            sender_name=" ".join(filter(None, named)) or author.get("title") or author.get("username"),
            message_id=message_id,
        )

    def _mentions(self, text: str, entities: Iterable[Mapping[str, Any]]) -> tuple[bool, str]:
        """Return whether entities mention the bot, and the text with a command without the bot's name."""
        data = text.encode("utf-16-le")
        found = False
        for entity in entities:
            start, length = int(entity["offset"]) * 2, int(entity["length"]) * 2
            part = data[start : start + length].decode("utf-16-le", "replace")
            if entity.get("type") == "mention":
                found = found or part.lower() == self._mention
            elif entity.get("type") == "text_mention":
                found = found or _mapping(entity, "user").get("id") == self._bot_id
            elif entity.get("type") == "bot_command" and "@" in part:
                command, _, name = part.partition("@")
                if f"@{name}".lower() == self._mention and start == 0:
                    return True, command + text[len(part) :]
        return found, text


def _files(message: Mapping[str, Any]) -> Iterable[IncomingFile]:
    photos = message.get("photo")
    if photos:
        largest = max(photos, key=lambda each: int(each.get("file_size") or each.get("width", 0)))
        yield _file(largest, "photo.jpg", "image/jpeg")
    for name, usual, media_type in (
        ("document", "document", ""),
        ("voice", "voice.ogg", "audio/ogg"),
        ("audio", "audio.mp3", "audio/mpeg"),
        ("video", "video.mp4", "video/mp4"),
        ("video_note", "video.mp4", "video/mp4"),
        ("animation", "animation.mp4", "video/mp4"),
        ("sticker", "sticker.webp", "image/webp"),
    ):
        found = _mapping(message, name)
        if found and not (name == "document" and message.get("animation")):
            yield _file(found, usual, media_type, is_voice=name == "voice")


def _file(found: Mapping[str, Any], name: str, media_type: str, *, is_voice: bool = False) -> IncomingFile:
    return IncomingFile(
        str(found["file_id"]),
        str(found.get("file_name") or name),
        str(found.get("mime_type") or media_type),
        int(found.get("file_size") or 0),
        is_voice,
    )


def _quoted(message: Mapping[str, Any], answered: Mapping[str, Any]) -> Iterable[QuotedText]:
    """Yield what the sender of a message did not write."""
    forwarded = _mapping(message, "forward_origin")
    if forwarded:
        author = _mapping(forwarded, "sender_user") or _mapping(forwarded, "chat") or _mapping(forwarded, "sender_chat")
        who = author.get("first_name") or author.get("title") or forwarded.get("sender_user_name") or "a person"
        yield QuotedText(f"forwarded from {who}", str(message.get("text") or message.get("caption") or ""))
    text = _mapping(message, "quote").get("text") or answered.get("text") or answered.get("caption")
    if text and not answered.get("forum_topic_created"):
        author = _mapping(answered, "from")
        yield QuotedText(f"in answer to {author.get('first_name') or 'a message'}", str(text))


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}
