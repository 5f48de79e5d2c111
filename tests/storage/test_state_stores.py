"""Stores of the state whose own suites use a whole home, on each database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from retinue.automation.webhooks import CreatedWebhookStore, WebhookDelivery, WebhookStore, hash_token
from retinue.core.envelope import Origin, PeerKind
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, RunId
from retinue.dispatch.channel_accounts import ChannelAccountStore, ListenerState
from retinue.dispatch.contacts import ContactState, ContactStore
from retinue.gateway.auth.tokens import TokenStore
from retinue.storage.database import Database
from retinue.testing.clock import FrozenClock
from retinue.wire.protocol import Scope
from tests.databases import DATABASES, open_database


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with open_database(request.param, tmp_path / "state.sqlite") as opened:
        yield opened


def test_people_who_ask_to_write_are_remembered_and_decided_about(database: Database) -> None:
    clock = FrozenClock()
    store = ContactStore(database, clock)
    origin = Origin("telegram", "main", PeerKind.DIRECT, "42", sender="42", sender_name="Ada")
    first = store.ask(origin)
    assert first is not None
    assert store.ask(origin) is None, "there is a valid code"
    clock.advance(timedelta(hours=2))
    again = store.ask(origin)
    assert again is not None
    assert [each.code for each in store.list()] == [again.code] != [first.code]
    assert store.decide(again.code, ContactState.APPROVED, "owner").decided_by == "owner"
    assert store.is_approved(origin)
    assert store.ask(origin) is None
    store.remove("telegram", "42")
    assert store.list() == ()


def test_the_state_of_a_channel_account_is_replaced_and_its_position_stays(database: Database) -> None:
    store = ChannelAccountStore(database, FrozenClock())
    store.advance("telegram", "main", "7")
    store.set_state("telegram", "main", ListenerState.RETRYING, "no network")
    store.advance("telegram", "main", "8")
    store.record_heard("telegram", "main", 1.5)
    (found,) = store.list()
    assert (found.position, found.state, found.error, found.lag) == ("8", ListenerState.RETRYING, "no network", 1.5)
    store.forget("telegram", "main")
    assert store.find("telegram", "main") is None


def test_a_webhook_of_an_agent_has_one_name_and_one_token(database: Database) -> None:
    store = CreatedWebhookStore(database, FrozenClock())
    store.create(AgentId("main"), "door", "It rang: {{text}}", "now")
    with pytest.raises(UsageError, match="already"):
        store.create(AgentId("other"), "door", "", "now")
    token = store.renew_token("door")
    store.record_use("door")
    found = store.get("door")
    assert (found.token_hash, found.template, found.used_at is not None) == (
        hash_token(token),
        "It rang: {{text}}",
        True,
    )
    assert store.revoke("door").agent == "main"
    assert store.list() == ()


def test_deliveries_are_kept_once_and_in_order_until_they_are_done(database: Database) -> None:
    clock = FrozenClock()
    store = WebhookStore(database, clock)
    delivery = WebhookDelivery(AgentId("main"), "hook:x")
    for run in ("b", "a", "b"):
        store.keep(RunId(run), delivery)
    assert [run.run for run in store.unfinished()] == ["b", "a"]
    store.forget(RunId("b"))
    assert [run.run for run in store.unfinished()] == ["a"]


def test_tokens_are_checked_used_and_revoked(database: Database) -> None:
    clock = FrozenClock()
    store = TokenStore(database, clock)
    record, text = store.create("laptop", (Scope.READ,), lifetime=timedelta(days=1))
    store.record_use(record.id)
    found = store.check(text)
    assert found is not None
    assert (found.scopes, found.used_at is not None) == ((Scope.READ,), True)
    assert store.check(f"{text}x") is None
    clock.advance(timedelta(days=2))
    assert store.check(text) is None
    assert store.invalid_ids() == {record.id}
    other, text = store.create("phone", (Scope.ADMIN,))
    assert store.revoke("phone").id == other.id
    assert store.check(text) is None
