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

OWNER, STRANGER = "owner", "stranger"
_PEOPLE: Mapping[str, Mapping[str, Any]] = {
    "telegram": {OWNER: 11, STRANGER: 99},
    "slack": {OWNER: "U0ADA", STRANGER: "U0EVE"},
    "discord": {OWNER: "11", STRANGER: "99"},
}
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
