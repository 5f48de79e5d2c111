"""The official libraries against the fakes, so that the fakes keep the rules of the services."""

from __future__ import annotations

import asyncio

import pytest

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
