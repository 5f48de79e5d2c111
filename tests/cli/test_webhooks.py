"""`retinue webhooks`: webhooks that agents created, and their tokens."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from retinue.automation.webhooks import CreatedWebhookStore, hash_token
from retinue.core.approval import IN_COMMAND
from retinue.core.clock import SystemClock
from retinue.core.keys import DEFAULT_AGENT
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from tests.cli.conftest import RunCommand


@pytest.fixture(autouse=True)
def created(home: Path) -> None:
    home.mkdir()
    with closing(SqliteDatabase(home / DATABASE_NAME)) as database:
        CreatedWebhookStore(database, SystemClock()).create(DEFAULT_AGENT, "build", "Build {{payload.id}}.", "now")


def test_a_webhook_is_listed_and_its_token_is_shown_once(home: Path, retinue: RunCommand) -> None:
    (row,) = retinue("webhooks", "list", "--json").data
    assert (row["name"], row["path"], row["agent"], row["hasToken"]) == ("build", "/hooks/build", "main", False)
    token = retinue("webhooks", "token", "build", "--json").data["token"]
    assert len(token) > 40
    listed = retinue("webhooks", "list", "--json")
    assert listed.data[0]["hasToken"]
    assert token not in listed.out
    with closing(SqliteDatabase(home / DATABASE_NAME)) as database:
        (stored,) = database.read("SELECT token_hash FROM webhooks")
    assert stored["token_hash"] == hash_token(token)


def test_a_webhook_is_revoked_and_an_unknown_one_is_an_error(retinue: RunCommand) -> None:
    assert retinue("webhooks", "revoke", "build", "--json").data == {"name": "build", "revoked": True}
    assert retinue("webhooks", "list").out.strip() == "No agent has created a webhook."
    unknown = retinue("webhooks", "token", "build", "--json")
    assert unknown.code == 2
    assert "There is no webhook 'build'" in unknown.data["error"]["message"]


@pytest.mark.parametrize("action", ["token", "revoke"])
def test_a_command_of_an_agent_cannot_manage_webhooks(
    retinue: RunCommand, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setenv(IN_COMMAND, "1")
    refused = retinue("webhooks", action, "build", "--json")
    assert refused.code == 2
    assert "cannot manage webhooks" in refused.data["error"]["message"]
