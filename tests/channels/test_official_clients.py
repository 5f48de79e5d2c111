"""The official libraries against the fakes, so that the fakes keep the rules of the services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import BytesIO

import pytest

from retinue.testing.chat_services import discord as fake_discord
from retinue.testing.chat_services import slack as fake_slack
from retinue.testing.chat_services import telegram as fake_telegram

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_python_telegram_bot_uses_the_fake() -> None:
    from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, MessageEntity
    from telegram.error import BadRequest, InvalidToken

    async with fake_telegram.FakeTelegram() as fake:
        bot = Bot(fake_telegram.TOKEN, base_url=f"{fake.url}/bot", base_file_url=f"{fake.url}/file/bot")
        async with bot:
            assert (await bot.get_me()).username == "retinue_test_bot"
            await fake.say("hello")
            (update,) = await bot.get_updates(timeout=5)
            assert update.message is not None
            assert update.message.text == "hello"
            keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="yes")]])
            entities = [MessageEntity(MessageEntity.BOLD, 0, 2)]
            sent = await bot.send_message(11, "hi 👋", entities=entities, reply_markup=keyboard)
            assert sent.entities[0].type == "bold"
            with pytest.raises(BadRequest, match="not modified"):
                await bot.edit_message_reply_markup(11, sent.message_id, reply_markup=keyboard)
            with pytest.raises(BadRequest, match="can't be edited"):
                await bot.edit_message_text("x", 11, update.message.message_id)
            with pytest.raises(BadRequest, match="too long"):
                await bot.send_message(11, "x" * 4_097)
            document = await bot.send_document(11, b"data", filename="notes.txt")
            assert document.document is not None
            file = await bot.get_file(document.document.file_id)
            assert bytes(await file.download_as_bytearray()) == b"data"
            assert await bot.get_updates(offset=update.update_id + 1, timeout=0) == ()
        wrong = Bot("1:wrong", base_url=f"{fake.url}/bot")
        with pytest.raises(InvalidToken):
            await wrong.initialize()
        await wrong.shutdown()


async def test_slack_sdk_uses_the_fake() -> None:
    from slack_sdk import WebClient
    from slack_sdk.errors import SlackApiError

    async with fake_slack.FakeSlack() as fake:
        client = WebClient(fake_slack.BOT_TOKEN, base_url=f"{fake.api_root}/")
        assert (await asyncio.to_thread(client.auth_test))["user_id"] == fake_slack.BOT
        metadata = {"event_type": "retinue_message", "event_payload": {"key": "k1"}}
        sent = await asyncio.to_thread(
            client.chat_postMessage, channel="DU0ADA", text="hi", blocks=[], metadata=metadata
        )
        history = await asyncio.to_thread(
            client.conversations_history, channel="DU0ADA", include_all_metadata=True, limit=10
        )
        assert history["messages"][0]["metadata"] == metadata
        await asyncio.to_thread(client.chat_update, channel="DU0ADA", ts=sent["ts"], text="changed")
        assert fake.sent[0]["text"] == "changed"
        app = WebClient(fake_slack.APP_TOKEN, base_url=f"{fake.api_root}/")
        opened = await asyncio.to_thread(app.apps_connections_open, app_token=fake_slack.APP_TOKEN)
        assert str(opened["url"]).startswith("ws://")
        with pytest.raises(SlackApiError, match="invalid_auth"):
            await asyncio.to_thread(WebClient("xoxb-wrong", base_url=f"{fake.api_root}/").auth_test)


@pytest.fixture
def official_discord(monkeypatch: pytest.MonkeyPatch) -> Callable[[fake_discord.FakeDiscord], None]:
    """Points discord.py, whose addresses are constants, to a fake."""
    from discord.gateway import DiscordWebSocket
    from discord.http import Route
    from yarl import URL

    def point(fake: fake_discord.FakeDiscord) -> None:
        monkeypatch.setattr(Route, "BASE", fake.api_root)
        monkeypatch.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", URL(fake.sockets.url))

    return point


@pytest.mark.filterwarnings("ignore:'audioop' is deprecated:DeprecationWarning")
async def test_discord_py_uses_the_fake(official_discord: Callable[[fake_discord.FakeDiscord], None]) -> None:
    import discord

    heard: asyncio.Queue[discord.Message | discord.RawReactionActionEvent | str] = asyncio.Queue()

    class Bot(discord.Client):
        async def on_message(self, message: discord.Message) -> None:
            await heard.put(message)

        async def on_raw_reaction_add(self, event: discord.RawReactionActionEvent) -> None:
            await heard.put(event)

        async def on_resumed(self) -> None:
            await heard.put("resumed")

    async with fake_discord.FakeDiscord() as fake, asyncio.timeout(60):
        official_discord(fake)
        intents = discord.Intents.default() | discord.Intents(message_content=True)
        async with Bot(intents=intents) as bot:
            await bot.login(fake_discord.TOKEN)
            assert bot.user is not None
            assert bot.user.name == "retinue"
            connected = asyncio.create_task(bot.connect())
            await bot.wait_until_ready()
            await fake.say("hello")
            first = await heard.get()
            assert isinstance(first, discord.Message)
            assert (first.content, first.author.name, first.guild) == ("hello", "ada", None)

            class Choice(discord.ui.View):
                @discord.ui.button(label="Yes", custom_id="yes")
                async def yes(self, interaction: discord.Interaction, button: discord.ui.Button[Choice]) -> None:
                    await interaction.response.send_message("noted", ephemeral=True)

            sent = await first.channel.send("hi 👋", view=Choice(), reference=first)
            assert sent.author.id == bot.user.id
            assert isinstance(await heard.get(), discord.Message)  # a bot reads its own messages
            await fake.press(fake.sent[0], "yes")
            await fake.until(lambda: fake.answers)
            assert fake.answers[0]["data"]["content"] == "noted"
            await sent.edit(content="changed", view=None)
            assert (fake.sent[0]["content"], fake.sent[0]["components"]) == ("changed", [])
            await sent.add_reaction("👍")
            assert fake.reactions[0][2] == "👍"
            with pytest.raises(discord.HTTPException, match="Invalid Form Body"):
                await first.channel.send("x" * 2_001)
            await first.channel.send(file=discord.File(BytesIO(b"data"), "notes.txt"))
            assert fake.sent[1]["attachments"][0]["filename"] == "notes.txt"
            shown = [each.content async for each in first.channel.history(limit=10, oldest_first=True)]
            assert shown == ["hello", "changed", ""]
            await fake.react(fake.sent[0], "🎉")
            while not isinstance(event := await heard.get(), discord.RawReactionActionEvent):
                pass
            assert str(event.emoji) == "🎉"
            await fake.sockets.cut()
            while await heard.get() != "resumed":
                pass
            assert fake.resumed == 1
            await sent.delete()
            assert len(fake.sent) == 1
            await bot.close()
            await connected
        async with discord.Client(intents=intents) as wrong:
            with pytest.raises(discord.LoginFailure):
                await wrong.login("wrong.token.x")
