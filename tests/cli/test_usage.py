"""`retinue usage`: tokens and costs by day, agent, model, source and session."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retinue.core.envelope import Source
from retinue.core.keys import SessionKey
from retinue.core.messages import AssistantMessage, Text, Usage
from retinue.sessions.entries import MessageAdded
from retinue.sessions.store import SessionStore
from tests.cli.conftest import RunCommand
from tests.sessions.builders import TickingClock

EVENING = (datetime.now(UTC) - timedelta(days=3)).replace(hour=20, minute=0, second=0, microsecond=0)
LONG_AGO = EVENING - timedelta(days=90)


def spend(home: Path, key: str, model: str, usage: Usage, at: datetime = EVENING, source: Source = Source.CHAT) -> None:
    session = SessionKey.parse(key)
    store = SessionStore(home / "agents" / session.agent / "sessions", TickingClock(at))
    answer = AssistantMessage((Text("ok"),), model, usage)
    store.open(session).append(MessageAdded(answer, source=source))
    store.usage()


@pytest.fixture(autouse=True)
def spent(home: Path) -> None:
    home.mkdir()
    agents = {"defaults": {"userTimezone": "Asia/Tokyo"}, "list": [{"id": "main"}, {"id": "clerk"}]}
    (home / "retinue.json").write_text(json.dumps({"agents": agents}))
    spend(home, "agent:main:main", "test/small", Usage(100, 10, 50, 5, 0.25))
    spend(home, "agent:main:ideas", "test/large", Usage(200, 20, cost=1.5), source=Source.CRON)
    spend(home, "agent:clerk:main", "test/small", Usage(1, 1), EVENING - timedelta(days=1))
    spend(home, "agent:clerk:old", "test/small", Usage(7_000, 7_000), LONG_AGO)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("agent", {"main": 385, "clerk": 2}),
        ("model", {"test/large": 220, "test/small": 167}),
        ("source", {"cron": 220, "chat": 167}),
        ("session", {"agent:main:ideas": 220, "agent:main:main": 165, "agent:clerk:main": 2}),
    ],
)
def test_usage_is_grouped_with_the_largest_first(retinue: RunCommand, by: str, expected: dict[str, int]) -> None:
    found = retinue("usage", "--by", by, "--json").data
    assert found["by"] == by
    assert [(row[by], row["total"]) for row in found["groups"]] == list(expected.items())
    assert found["total"] == {
        "input": 301,
        "output": 31,
        "cacheRead": 50,
        "cacheWrite": 5,
        "total": 387,
        "cost": 1.75,
    }


def test_a_day_is_one_of_the_users_time_zone(retinue: RunCommand) -> None:
    found = retinue("usage", "--by", "day", "--json").data
    local_day = EVENING + timedelta(hours=9)
    assert [row["day"] for row in found["groups"]] == [f"{local_day - timedelta(days=1):%F}", f"{local_day:%F}"]
    assert found["timezone"] == "Asia/Tokyo"


def test_usage_is_shown_as_a_table_with_a_total(retinue: RunCommand) -> None:
    shown = retinue("usage", "--by", "model").out
    assert shown.splitlines()[0].split() == ["model", "read", "cached", "written", "cost"]
    assert "$1.7500" in shown.splitlines()[-1]


def test_usage_can_be_limited_to_an_agent_and_to_days(retinue: RunCommand) -> None:
    assert retinue("usage", "--agent", "clerk", "--json").data["total"]["total"] == 2
    assert retinue("usage", "--agent", "clerk", "--days", "365", "--json").data["total"]["total"] == 14_002
    assert "No model was called in the last 1 days." in retinue("usage", "--days", "1").out
    wrong = retinue("usage", "--agent", "nobody", "--json")
    assert wrong.code == 2
    assert "nobody" in wrong.data["error"]["message"]
