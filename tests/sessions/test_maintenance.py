"""Tidying up: old sessions become archives, the oldest archives make room, and nothing in use is touched."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.keys import AgentId, SessionId, SessionKey
from retinue.sessions.folder import TranscriptFolder
from retinue.sessions.maintenance import (
    RECENT,
    MaintenancePlan,
    apply_plan,
    plan_maintenance,
    run_maintenance,
)
from retinue.sessions.protocol import Archive
from retinue.sessions.session import Session
from retinue.sessions.settings import MaintenanceSettings
from retinue.sessions.store import SessionStore
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import SessionLease
from retinue.structs.decode import DecodeError, decode
from tests.sessions.builders import TickingClock, counting, texts, user

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def days(count: float) -> timedelta:
    return timedelta(days=count)


def session(name: str, age: float, size: int = 100) -> Session:
    key = SessionKey.parse(name)
    return Session(key, SessionId(key.text.replace(":", "-")), NOW - days(age + 1), NOW - days(age), size=size)


def archive(name: str, age: float, size: int = 100, why: str = "reset") -> Archive:
    return Archive(f"{name}.jsonl.{why}.z", why, NOW - days(age), size)


def settings(**values: Any) -> MaintenanceSettings:
    return decode(MaintenanceSettings, values)


def names(plan: MaintenancePlan) -> tuple[list[str], list[str]]:
    return [each.key.text.split(":", 2)[2] for each in plan.archive], [each.name[0] for each in plan.delete]


def test_sessions_are_archived_after_thirty_days() -> None:
    plan = plan_maintenance([session("a", 29), session("b", 31)], [], settings(), NOW)
    assert names(plan) == (["b"], [])
    assert plan.reasons == {"agent:main:b": "not used for 30d"}


def test_the_main_session_waits_for_its_person() -> None:
    assert plan_maintenance([session("main", 400)], [], settings(maxEntries=1), NOW) == MaintenancePlan()


def test_chats_of_the_control_page_go_earlier() -> None:
    old = [session("agent:main:dashboard:1", 8), session("b", 8)]
    assert names(plan_maintenance(old, [], settings(), NOW))[0] == ["dashboard:1"]


def test_of_too_many_sessions_the_oldest_go() -> None:
    many = [session("a", 3), session("b", 5), session("c", 4), session("d", 40)]
    plan = plan_maintenance(many, [], settings(maxEntries=2), NOW)
    assert set(names(plan)[0]) == {"b", "d"}
    assert plan.reasons["agent:main:b"] == "there are more than 2 sessions"


def test_what_was_used_within_a_day_stays_whatever_the_settings_say() -> None:
    hard = settings(pruneAfter="1h", maxEntries=1, archiveDashboardAfter="1h")
    fresh = [session("a", 0.9), session("agent:main:dashboard:1", 0.5), session("c", 1.1)]
    assert names(plan_maintenance(fresh, [], hard, NOW))[0] == ["c"]


def test_recent_ones_can_be_preserved_longer() -> None:
    kept = settings(pruneAfter="2d", preserveRecent="10d")
    assert names(plan_maintenance([session("a", 9), session("b", 11)], [], kept, NOW))[0] == ["b"]


def test_archives_of_resets_are_kept_unless_told_otherwise() -> None:
    old = [archive("a", 500), archive("b", 500, why="deleted"), archive("c", 20)]
    assert plan_maintenance([], old, settings(), NOW) == MaintenancePlan()
    plan = plan_maintenance([], old, settings(resetArchiveRetention="30d"), NOW)
    assert names(plan)[1] == ["a"]
    assert plan.reasons == {old[0].name: "archived by a reset more than 30d ago"}


def test_where_room_is_short_the_oldest_archives_go_until_there_is_some() -> None:
    archives = [archive("a", 10, 300), archive("b", 30, 300), archive("c", 20, 300)]
    plan = plan_maintenance([session("s", 2, 200)], archives, settings(maxDiskBytes=1000), NOW)
    assert names(plan) == ([], ["b"])
    plan = plan_maintenance([session("s", 2, 200)], archives, settings(maxDiskBytes="1000", highWaterBytes="50%"), NOW)
    assert names(plan)[1] == ["b", "c"]
    plan = plan_maintenance([session("s", 2, 200)], archives, settings(maxDiskBytes=1100), NOW)
    assert plan == MaintenancePlan()


def test_what_retention_removes_counts_as_room_made() -> None:
    archives = [archive("a", 10, 300), archive("b", 40, 800)]
    limits = settings(maxDiskBytes=1000, resetArchiveRetention="30d")
    assert names(plan_maintenance([], archives, limits, NOW))[1] == ["b"]


def test_live_sessions_and_fresh_archives_are_not_removed_even_then() -> None:
    plan = plan_maintenance(
        [session("s", 90, 5000)], [archive("a", 0.5, 500)], settings(maxDiskBytes=1000, highWaterBytes=10), NOW
    )
    assert names(plan) == (["s"], [])
    [remark] = plan.remarks
    assert "maxDiskBytes (1000)" in remark


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10**6)), max_size=12),
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10**6)), max_size=12),
    st.integers(1, 8),
    st.integers(0, 10**7),
)
def test_no_plan_touches_what_was_used_today(
    live: list[tuple[float, int]], old: list[tuple[float, int]], entries: int, room: int
) -> None:
    sessions = [session(f"s{at}", age, size) for at, (age, size) in enumerate(live)]
    archives = [archive(f"a{at}", age, size) for at, (age, size) in enumerate(old)]
    limits = settings(maxEntries=entries, maxDiskBytes=room, resetArchiveRetention="5d")
    plan = plan_maintenance(sessions, archives, limits, NOW)
    assert all(NOW - each.updated_at >= RECENT for each in plan.archive)
    assert all(NOW - each.at >= RECENT for each in plan.delete)
    assert len({each.name for each in plan.delete}) == len(plan.delete)
    assert set(plan.reasons) == {each.key.text for each in plan.archive} | {each.name for each in plan.delete}
    total = sum(each.size for each in sessions) + sum(each.size for each in archives)
    left = total - sum(each.size for each in plan.delete)
    assert left <= room or plan.remarks


@pytest.mark.parametrize("wrong", [{"maxDiskBytes": "lots"}, {"highWaterBytes": "80 percent"}, {"maxDiskBytes": -1}])
def test_sizes_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(DecodeError):
        decode(MaintenanceSettings, wrong)


@pytest.fixture
def home(tmp_path: Path) -> HomePaths:
    return HomePaths(tmp_path / "home")


@pytest.fixture
def store(home: HomePaths) -> SessionStore:
    """Three sessions, last used on the third of February."""
    made = SessionStore(home.sessions(AgentId("main")), TickingClock(), session_ids=counting("s").__next__)
    for name in ("main", "ideas", "plans"):
        made.open(SessionKey.parse(name)).append(user(f"in {name}"))
    return made


def test_enforcing_archives_and_keeps_the_words(store: SessionStore, home: HomePaths) -> None:
    plan, tidied = run_maintenance(store, settings(), NOW, partial(SessionLease, home))
    assert [each.key.text for each in store.list()] == ["agent:main:main"]
    assert set(tidied.archived) == {each.key for each in plan.archive}
    assert "in ideas" in Path(tidied.archived[SessionKey.parse("ideas")].location).read_text()
    assert [each.why for each in store.archives()] == ["deleted", "deleted"]


def test_warning_only_tells(store: SessionStore, home: HomePaths) -> None:
    plan, tidied = run_maintenance(store, settings(mode="warn"), NOW, partial(SessionLease, home))
    assert len(plan.archive) == 2
    assert not tidied.archived
    assert len(store.list()) == 3


def test_a_session_whose_lease_is_held_stays(store: SessionStore, home: HomePaths) -> None:
    key = SessionKey.parse("ideas")
    with SessionLease(home, key):
        _, tidied = run_maintenance(store, settings(), NOW, partial(SessionLease, home))
    assert list(tidied.archived) == [SessionKey.parse("plans")]
    assert "in use by another process" in tidied.skipped[0]
    assert texts(store.open(key)) == ["in ideas"]


def test_a_session_that_was_used_after_the_plan_stays(store: SessionStore, home: HomePaths) -> None:
    plan = plan_maintenance(store.list(), [], settings(), NOW)
    key = SessionKey.parse("ideas")
    store.open(key).append(user("I am back"))
    tidied = apply_plan(plan, store, partial(SessionLease, home))
    assert tidied.skipped == ("agent:main:ideas was used meanwhile and is kept.",)
    assert texts(store.open(key)) == ["in ideas", "I am back"]


def test_removal_takes_the_planned_archives_only(store: SessionStore, home: HomePaths) -> None:
    store.reset(SessionKey.parse("ideas"))
    store.reset(SessionKey.parse("main"))
    first, second = store.archives()
    assert first.at < second.at
    assert first.at.date().isoformat() == "2026-02-03"
    limit = sum(each.size for each in store.list()) + first.size + second.size - 1
    _, tidied = run_maintenance(
        store,
        settings(maxDiskBytes=limit, highWaterBytes="100%", pruneAfter="365d"),
        NOW,
        partial(SessionLease, home),
    )
    assert tidied.deleted == (first,)
    assert store.archives() == (second,)


def test_only_archives_count_as_archives(store: SessionStore) -> None:
    stamp = "2026-02-03T10-00-00Z"
    (store.folder / f"x.jsonl.reset.{stamp}").mkdir()
    (store.folder / f"y.jsonl.deleted.{stamp}").symlink_to("sessions.json")
    (store.folder / f"z.jsonl.torn.{stamp}").write_text("x")
    (store.folder / "q.jsonl.reset.2026-99-99T10-00-00Z").write_text("a date that never was")
    [found] = store.archives()
    assert found.name.startswith("q.")
    assert found.at.year >= 2026
    assert TranscriptFolder(store.folder / "nowhere").archives() == ()


def test_a_home_without_sessions_stays_without(tmp_path: Path) -> None:
    home = HomePaths(tmp_path / "none")
    store = SessionStore(home.sessions(AgentId("main")), TickingClock())
    plan, _ = run_maintenance(store, settings(), NOW, partial(SessionLease, home))
    assert plan == MaintenancePlan()
    assert not home.path.exists()
