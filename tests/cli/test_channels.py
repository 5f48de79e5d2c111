"""`retinue channels`: adding an account, its state, and the people who wait."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from retinue.core.clock import SystemClock
from retinue.core.envelope import Origin, PeerKind
from retinue.dispatch.contacts import ContactStore
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.testing.chat_services.telegram import TOKEN, FakeTelegram
from tests.cli.conftest import RunCommand


@pytest.fixture
def telegram() -> Iterator[str]:
    """The address of a Bot API server in a thread, because commands run their own event loop."""
    started, ended = threading.Event(), threading.Event()
    address: list[str] = []

    async def serve() -> None:
        async with FakeTelegram() as fake:
            address.append(fake.url)
            started.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    started.wait(60)
    yield address[0]
    ended.set()
    thread.join(60)


def test_an_account_is_checked_before_it_is_added(retinue: RunCommand, home: Path, telegram: str) -> None:
    root = f"apiRoot={telegram}"
    wrong = retinue("channels", "add", "telegram", "--token", "1:wrong", "--set", root, "--json")
    assert wrong.code != 0
    assert "does not know this token" in json.loads(wrong.err or wrong.out)["error"]["message"]
    assert retinue("channels", "status", "--json").data == []
    added = retinue("channels", "add", "telegram", "--token", TOKEN, "--set", root, "--json")
    assert (added.code, added.data["name"]) == (0, "@retinue_test_bot")
    (status,) = retinue("channels", "status", "--json").data
    assert (status["channel"], status["account"], status["state"]) == ("telegram", "default", "stopped")
    assert {"position", "lag", "error"} <= status.keys()
    assert retinue("channels", "test", "telegram", "--json").data["ok"] is True
    listed = {each["channel"]: each["accounts"] for each in retinue("channels", "list", "--json").data}
    assert listed["telegram"] == ["default"]
    assert listed["slack"] == []
    sent = retinue("channels", "send", "telegram", "hello", "--to", "11", "--json").data
    assert sent["state"] == "waiting"
    assert retinue("channels", "remove", "telegram", "--json").data["removed"] is True
    assert retinue("channels", "status", "--json").data == []
    assert TOKEN not in (home / "audit.jsonl").read_text()


def test_people_are_approved_with_their_code(retinue: RunCommand, home: Path) -> None:
    retinue("init")
    with closing(SqliteDatabase(home / DATABASE_NAME)) as database:
        contacts = ContactStore(database, SystemClock())
        first = contacts.ask(Origin("telegram", "default", PeerKind.DIRECT, "99", sender_name="Eve"))
        second = contacts.ask(Origin("telegram", "default", PeerKind.DIRECT, "12", sender_name="Me"))
    assert first is not None
    assert second is not None
    listed = retinue("channels", "pairing", "list", "--json").data
    assert [(each["address"], each["state"]) for each in listed] == [
        ("telegram:99", "waiting"),
        ("telegram:12", "waiting"),
    ]
    assert retinue("channels", "pairing", "approve", "WRONG").code != 0
    retinue("channels", "pairing", "reject", first.code)
    approved = retinue("channels", "pairing", "approve", second.code.lower(), "--owner", "--json").data
    assert (approved["address"], approved["owner"]) == ("telegram:12", True)
    assert "telegram:12" in retinue("config", "get", "commands.ownerAllowFrom", "--json").out
    assert retinue("channels", "pairing", "approve", second.code).code != 0
    assert retinue("channels", "pairing", "remove", "telegram:99").code == 0
    assert len(retinue("channels", "pairing", "list", "--json").data) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add", "whatsup"), "not a built-in service"),
        (("add", "telegram"), "--token"),
        (("test", "telegram"), "There is no account"),
        (("send", "telegram", "x", "--to", "1"), "There is no account"),
        (("add", "telegram", "--set", "nonsense", "--token", "x"), "KEY=VALUE"),
    ],
)
def test_wrong_input_says_what_to_do(retinue: RunCommand, home: Path, words: tuple[str, ...], told: str) -> None:
    ran = retinue("channels", *words)
    assert ran.code != 0
    assert told in ran.err


def test_services_with_requests_need_no_app_token(retinue: RunCommand, home: Path) -> None:
    missing = retinue("channels", "add", "slack", "--token", "xoxb-1", "--no-test", "--json")
    assert missing.code != 0
    assert "appToken" in json.loads(missing.err or missing.out)["error"]["message"]
    given = ("--token", "xoxb-1", "--set", "signingSecret=s3cret", "--no-test", "--json")
    assert retinue("channels", "add", "slack", *given).data["added"] is True
    unnamed = retinue("channels", "add", "--json")
    assert unnamed.code != 0
    assert "Name the service: telegram, slack, discord." in (unnamed.err or unnamed.out)
