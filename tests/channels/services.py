"""The three chat services behind one interface, for tests that run over all of them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from retinue.testing.chat_services import discord, slack, telegram
from retinue.testing.chat_services.discord import FakeDiscord
from retinue.testing.chat_services.slack import FakeSlack
from retinue.testing.chat_services.telegram import FakeTelegram
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, says

OWNER, FRIEND, STRANGER = "owner", "friend", "stranger"
_PEOPLE: Mapping[str, Mapping[str, Any]] = {
    "telegram": {OWNER: 11, FRIEND: 55, STRANGER: 99},
    "slack": {OWNER: "U0ADA", FRIEND: "U0BEN", STRANGER: "U0EVE"},
    "discord": {OWNER: "11", FRIEND: "55", STRANGER: "99"},
}
_GROUPS: Mapping[str, str] = {"telegram": "-1007", "slack": "C0ROOM", "discord": "8100"}
_GUILD = "9000"
SENDS = {"telegram": "/sendMessage", "slack": "chat.postMessage", "discord": "POST channels/"}
"""The request that sends a text."""


@dataclass
class World:
    """One service: people write, and the texts of the bot can be read."""

    name: str
    fake: Any

    @property
    def config(self) -> dict[str, Any]:
        match self.name:
            case "telegram":
                return {"botToken": telegram.TOKEN, "apiRoot": self.fake.url}
            case "slack":
                return {"botToken": slack.BOT_TOKEN, "appToken": slack.APP_TOKEN, "apiRoot": self.fake.api_root}
            case _:
                return {"token": discord.TOKEN, "apiRoot": self.fake.api_root}

    @property
    def owner(self) -> str:
        return f"{self.name}:{_PEOPLE[self.name][OWNER]}"

    @property
    def stranger(self) -> str:
        return f"{self.name}:{_PEOPLE[self.name][STRANGER]}"

    async def ready(self) -> None:
        """Wait until messages reach the gateway: Discord keeps none for a bot that was never connected."""
        if self.name == "discord":
            await self.fake.until(lambda: self.fake.identified)

    def address(self, who: str) -> str:
        """A person as the configuration names them."""
        return f"{self.name}:{_PEOPLE[self.name][who]}"

    def group_config(self, **rules: Any) -> dict[str, Any]:
        """The keys of the channel for the group, with its own rules, in the form of the service."""
        match self.name:
            case "telegram":
                return {"groups": {_GROUPS[self.name]: rules}}
            case "slack":
                return {"channels": {_GROUPS[self.name]: rules}}
            case _:
                return {"guilds": {_GUILD: {"channels": {_GROUPS[self.name]: rules}}}}

    async def say_in_group(
        self, text: str, who: str = OWNER, *, mentions: bool = True, thread: str = "", **more: Any
    ) -> dict[str, Any]:
        """Write in the group, or in a thread of it; `mentions` adds a mention of the bot as the service has it."""
        group = _GROUPS[self.name]
        match self.name:
            case "telegram":
                name = f"@{telegram.BOT['username']}"
                if mentions:
                    more["entities"] = [{"type": "mention", "offset": 0, "length": len(name)}]
                    text = f"{name} {text}"
                if thread:
                    more |= {"is_topic_message": True, "message_thread_id": int(thread)}
                return await self.say(text, who, chat=self._telegram_group, **more)
            case "slack":
                if thread:
                    more["thread_ts"] = thread
                return await self.say(f"<@{slack.BOT}> {text}" if mentions else text, who, chat=group, **more)
            case _:
                if mentions:
                    text = f"<@{discord.BOT['id']}> {text}"
                    more["mentions"] = [{"id": discord.BOT["id"]}]
                if thread:
                    self.fake.channels[thread] = {"id": thread, "type": 11, "parent_id": group, "guild_id": _GUILD}
                return await self.say(text, who, chat=thread or group, guild=_GUILD, **more)

    @property
    def _telegram_group(self) -> dict[str, Any]:
        return {"id": int(_GROUPS["telegram"]), "type": "supergroup", "title": "Family"}

    async def react(self, message: dict[str, Any], emoji: str, who: str = OWNER) -> None:
        """React to a message of the group."""
        person = _PEOPLE[self.name][who]
        match self.name:
            case "telegram":
                await self.fake.react(message["message_id"], emoji, user=person, chat=self._telegram_group)
            case "slack":
                await self.fake.react(message, {"👍": "thumbsup"}[emoji], user=person)
            case _:
                await self.fake.react(message, emoji, user=person, guild=_GUILD)

    def reactions(self) -> list[str]:
        """The reactions of the bot."""
        match self.name:
            case "telegram":
                return [each["emoji"] for sent in self.fake.reactions for each in sent["reaction"]]
            case "slack":
                return [each["name"] for each in self.fake.reactions]
            case _:
                return [emoji for _, _, emoji in self.fake.reactions]

    def answers_to(self, message: dict[str, Any]) -> str:
        """The id of the message that a message of the bot refers to."""
        match self.name:
            case "telegram":
                return str(message.get("reply_to"))
            case "slack":
                return str(message.get("thread_ts"))
            case _:
                return str((message.get("message_reference") or {}).get("message_id"))

    def id_of(self, message: dict[str, Any]) -> str:
        return str(message[{"telegram": "message_id", "slack": "ts", "discord": "id"}[self.name]])

    async def answer_in_group(self, text: str, answered: dict[str, Any], who: str) -> None:
        """Answer a message of the bot in the group, without a mention."""
        match self.name:
            case "telegram":
                await self.say_in_group(text, who, mentions=False, reply_to_message=answered)
            case "slack":
                await self.say_in_group(text, who, mentions=False, thread=answered["ts"], parent_user_id=slack.BOT)
            case _:
                await self.say_in_group(text, who, mentions=False, referenced_message=answered)

    async def say(self, text: str = "", who: str = OWNER, **more: Any) -> dict[str, Any]:
        said: dict[str, Any] = await self.fake.say(text, user=_PEOPLE[self.name][who], **more)
        return said

    async def repeat(self, message: dict[str, Any]) -> None:
        """Deliver a message a second time."""
        await self.fake.repeat({"message": message} if self.name == "telegram" else message)

    async def press(self, message: dict[str, Any], value: str, who: str = OWNER) -> None:
        await self.fake.press(message, value, user=_PEOPLE[self.name][who])

    async def cut(self) -> None:
        """Break the connection through which messages arrive."""
        if self.name != "telegram":
            await self.fake.sockets.cut()

    def texts(self, who: str | None = None) -> list[str]:
        """The texts of the bot, as they are now, in all chats or in one."""
        return [self.text_of(each) for each in self.fake.sent if who is None or self.is_for(each, who)]

    def text_of(self, message: dict[str, Any]) -> str:
        return str(message.get("content") if self.name == "discord" else message.get("text", ""))

    def is_for(self, message: dict[str, Any], who: str) -> bool:
        person = _PEOPLE[self.name][who]
        match self.name:
            case "telegram":
                return bool(message["chat"]["id"] == person)
            case "slack":
                return bool(message["channel"] == f"D{person}")
            case _:
                return bool(message["channel_id"] == f"7{person}")

    def buttons(self, message: dict[str, Any]) -> dict[str, str]:
        """The buttons of a message: their values by their labels."""
        match self.name:
            case "telegram":
                rows = (message.get("reply_markup") or {}).get("inline_keyboard", [])
                return {each["text"]: each["callback_data"] for row in rows for each in row}
            case "slack":
                rows = [block["elements"] for block in message.get("blocks", []) if block["type"] == "actions"]
                return {each["text"]["text"]: each["value"] for row in rows for each in row}
            case _:
                rows = [row["components"] for row in message.get("components") or []]
                return {each["label"]: each["custom_id"] for row in rows for each in row}

    def told(self) -> list[str]:
        """What people were told about their presses of buttons."""
        match self.name:
            case "telegram":
                return [text for text in self.fake.presses.values() if text]
            case "slack":
                return [each["text"] for each in self.fake.whispers]
            case _:
                return [each["data"]["content"] for each in self.fake.answers if each.get("data")]

    def file(self, data: bytes, name: str, media_type: str) -> dict[str, Any]:
        """What a message contains of a file."""
        stored = self.fake.store(data, name, media_type)
        match self.name:
            case "telegram":
                return {
                    "document": {"file_id": stored, "file_name": name, "mime_type": media_type, "file_size": len(data)}
                }
            case "slack":
                return {"files": [stored], "subtype": "file_share"}
            case _:
                return {"attachments": [stored]}


class EchoModel(ModelServer):
    """Answers `question 3` with `answer 3`, however often it is asked."""

    async def reply_to(self, request: Received) -> Reply:
        asked = re.findall(r"question \d+", json.dumps(request.json["messages"][-1]))
        return says(asked[-1].replace("question", "answer") if asked else "nothing was asked")


@asynccontextmanager
async def open_world(name: str) -> AsyncIterator[World]:
    fakes = {"telegram": FakeTelegram, "slack": FakeSlack, "discord": FakeDiscord}
    async with fakes[name]() as fake:
        yield World(name, fake)
