"""Where the reports of heartbeats go, and to whom they never do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.automation.heartbeat import WakeReason
from retinue.core.envelope import Inbound, Origin, PeerKind
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.runtime.automation.heartbeats import HeartbeatRunner
from retinue.runtime.open import show_nothing
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import says
from tests.runtime.conftest import Stage
from tests.runtime.test_heartbeats import MAIN, Counting, awake

pytestmark = pytest.mark.anyio

CHANNEL = {
    "channels": {
        "http": {
            "accounts": {
                "home": {"token": "t" * 20, "webhookUrl": "http://127.0.0.1:9/home"},
                "office": {"token": "u" * 20, "webhookUrl": "http://127.0.0.1:9/office"},
            }
        }
    },
    "commands": {"ownerAllowFrom": ["http:ada"]},
}
ADA = Origin("http", "home", PeerKind.DIRECT, "ada")


def told_on(heart: HeartbeatRunner, account: str) -> list[tuple[str, str]]:
    """To whom something is to leave through an account, and what."""
    found = heart.sessions.services.outbox.results("http", account)
    return [(inbound.origin.peer, out.text) for inbound, out in found if inbound.origin and not out.silent]


@pytest.mark.parametrize(
    ("heartbeat", "outcome", "home", "office"),
    [
        ({"target": "last"}, "delivered", [("ada", "The build is red.")], []),
        ({"target": "last", "accountId": "office"}, "delivered", [], [("ada", "The build is red.")]),
        ({"target": "http"}, "delivered", [("ada", "The build is red.")], []),
        ({"target": "http", "to": "bob"}, "delivered", [("bob", "The build is red.")], []),
        (
            {"target": "http", "to": "group:crew", "accountId": "office"},
            "delivered",
            [],
            [("crew", "The build is red.")],
        ),
        ({"target": "last", "directPolicy": "block"}, "quiet", [], []),
        ({"target": "http", "to": "bob", "directPolicy": "block"}, "quiet", [], []),
        (
            {"target": "http", "to": "group:crew", "directPolicy": "block"},
            "delivered",
            [("crew", "The build is red.")],
            [],
        ),
        ({"target": "none"}, "quiet", [], []),
    ],
)
async def test_where_a_report_goes(
    tmp_path: Path,
    heartbeat: dict[str, Any],
    outcome: str,
    home: list[tuple[str, str]],
    office: list[tuple[str, str]],
) -> None:
    async with ModelServer(says("hello"), then=says("The build is red.")) as server:
        config = {**CHANNEL, "agents": {"defaults": {"heartbeat": heartbeat}}}
        async with awake(Stage(HomePaths(tmp_path / "home"), server, config=config)) as heart:
            answer = await heart.dispatcher.say(Inbound("hi", MAIN, origin=ADA, channel="http"), show_nothing)
            heart.sessions.services.inbox.delivered(answer.run)
            beat = await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)
            assert beat.outcome == outcome
            assert told_on(heart, "home") == home
            assert told_on(heart, "office") == office
            assert heart.sessions.services.inbox.undelivered(MAIN) == ()


async def test_a_stranger_who_wrote_last_gets_no_report(tmp_path: Path) -> None:
    async with (
        ModelServer(says("hello"), then=says("The build is red.")) as server,
        awake(Stage(HomePaths(tmp_path / "home"), server, config=CHANNEL)) as heart,
    ):
        eve = Origin("http", "home", PeerKind.DIRECT, "eve")
        chat = SessionKey.parse("agent:main:http:home:direct:eve")
        answer = await heart.dispatcher.say(Inbound("hi", chat, owner=False, origin=eve, channel="http"), show_nothing)
        heart.sessions.services.inbox.delivered(answer.run)
        assert (await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)).outcome == "delivered"
        assert told_on(heart, "home") == []
        assert [item.outbound.text for item in heart.sessions.services.inbox.undelivered(MAIN)] == ["The build is red."]


@pytest.mark.parametrize(
    ("heartbeat", "told"),
    [
        ({"target": "pigeon", "to": "bob"}, "There is no such channel"),
        ({"target": "http"}, "has not written on http yet"),
        ({"target": "http", "to": "bob", "accountId": "moon"}, "There is no such channel and account"),
    ],
)
async def test_where_nothing_can_be_delivered_no_model_is_asked(
    tmp_path: Path, heartbeat: dict[str, Any], told: str
) -> None:
    async with Counting() as server:
        config = {**CHANNEL, "agents": {"defaults": {"heartbeat": heartbeat}}}
        async with awake(Stage(HomePaths(tmp_path / "home"), server, config=config)) as heart:
            beat = await heart.run_now(DEFAULT_AGENT, WakeReason.INTERVAL)
            assert beat.outcome == "skipped"
            assert told in beat.detail
            assert server.requests == []
