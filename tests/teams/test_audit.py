"""The audit log of a team: its chain, erasure, retention, and the copy of what homes record."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from retinue.storage.auditlog import AuditLog
from retinue.teams.access import NewAccess
from retinue.teams.audit import AuditSearch, NewAuditEntry, TeamAuditLog
from retinue.teams.audit_copy import AuditCopy
from retinue.teams.members import MemberStore
from retinue.teams.roles import TeamRole
from tests.teams.conftest import Database, SetClock, TeamFixture


def fill(team: TeamFixture, *who: str) -> TeamAuditLog:
    log = TeamAuditLog(team.database)
    for number, name in enumerate(who):
        log.append([NewAuditEntry(team.clock.now(), "signed_in", name, {"number": number, "text": 'a "quoted" \0 ü'})])
        team.clock.advance(days=1)
    return log


def test_entries_are_chained_and_searched(red: TeamFixture, blue: TeamFixture) -> None:
    log = fill(red, "ada", "bob", "ada")
    report = log.verify()
    assert (report.ok, report.entries) == (True, 3)
    newest, oldest = log.search(AuditSearch(text="ADA"))
    assert (newest.n, oldest.n, oldest.previous, newest.hash) == (3, 1, "0" * 64, report.head)
    assert newest.plain_details["number"] == 2
    since = red.clock.now() - timedelta(days=1, hours=1)
    assert [entry.n for entry in log.search(AuditSearch(since=since))] == [3]
    assert log.search(AuditSearch(kind="other")) == ()
    other = TeamAuditLog(blue.database)
    assert (other.search(AuditSearch()), other.verify().entries) == ((), 0)


def test_entries_cannot_be_changed_or_deleted(database: Database, red: TeamFixture) -> None:
    fill(red, "ada", "bob")
    with psycopg.connect(database.url) as connected:
        connected.execute("SELECT set_config('app.team', 'red', true)")
        assert connected.execute("UPDATE team_audit SET who = 'eve'").rowcount == 0
        assert connected.execute("DELETE FROM team_audit").rowcount == 0
        connected.execute("SELECT set_config('app.audit', 'erase', true)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connected.execute("UPDATE team_audit SET who = 'eve'")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("UPDATE team_audit SET who = 'eve' WHERE n = 2", "the content of entry 2 was changed"),
        ("UPDATE team_audit SET kind = 'other' WHERE n = 2", "entry 2 was changed"),
        ("UPDATE team_audit SET at = at + interval '1 hour' WHERE n = 2", "entry 2 was changed"),
        ("DELETE FROM team_audit WHERE n = 2", "entry 3 does not follow entry 1"),
        ("DELETE FROM team_audit WHERE n = 3", "entries 3 to 3 are missing at the end"),
        ("DELETE FROM team_audit WHERE n = 1", "entries up to 1 are missing at the beginning"),
        (
            "UPDATE team_audit SET who = NULL, details = NULL, salt = NULL WHERE n = 2",
            "the content of entry 2 was removed without an erasure",
        ),
    ],
)
def test_a_verification_finds_every_change(database: Database, red: TeamFixture, change: str, fault: str) -> None:
    log = fill(red, "ada", "bob", "ada")
    admin = database.url.replace("retinue_application:", "postgres:")
    with psycopg.connect(admin, autocommit=True) as connected:  # a superuser, whom no policy binds
        connected.execute(change.encode())
    assert fault in log.verify().faults


def test_an_erasure_removes_what_names_the_member_and_keeps_the_chain_valid(red: TeamFixture) -> None:
    member = red.add("ada@example.org")
    red.add("owner@example.org", TeamRole.OWNER)
    red.access.create(NewAccess(member.id, "password", "a browser"))
    log = fill(red, "ada@example.org", "bob@example.org", f"gateway:x (member:{member.id})")
    before = {entry.n: entry.hash for entry in log.all()}
    assert log.erase(member, "command line") == 2
    report = log.verify()
    assert (report.ok, report.entries) == (True, 4)
    assert {entry.n: entry.hash for entry in log.all() if entry.n < 4} == before
    assert [entry.n for entry in log.search(AuditSearch(text="ada@example.org"))] == []
    assert log.search(AuditSearch(kind="member_erased"))[0].plain_details == {"member": member.id, "entries": [1, 3]}
    found = MemberStore(red.database).require(member.id)
    assert (found.login, found.is_active) == (f"erased-{member.id}", False)
    assert red.access.list_of(member.id) == ()


def test_an_erasure_leaves_entries_alone_whose_words_only_contain_the_login(red: TeamFixture) -> None:
    red.add("owner@example.org", TeamRole.OWNER)
    bo = red.add("bo")
    log = TeamAuditLog(red.database)
    now = red.clock.now()
    texts = ("bob@example.org", "about robots", "bo@example.org", "said:\nBo did it", "by bo.", "é\tbo", f"a-{bo.id}0")
    log.append([NewAuditEntry(now, "noted", "someone", {"text": text}) for text in texts])
    assert log.erase(bo, "command line") == 3
    kept = [entry.plain_details["text"] for entry in log.all() if entry.kind == "noted" and entry.details]
    assert kept == ["bob@example.org", "about robots", "bo@example.org", f"a-{bo.id}0"]
    assert log.verify().ok


def test_old_entries_are_deleted_and_the_rest_stays_valid(red: TeamFixture) -> None:
    log = fill(red, "ada", "bob", "cid", "dan")
    assert log.prune(red.clock.now() - timedelta(days=2, hours=1)) == 2
    assert [entry.kind for entry in log.all()] == ["signed_in", "signed_in", "audit_pruned"]
    assert log.verify().faults == ()
    red.clock.advance(days=10)
    assert log.prune(red.clock.now()) == 2
    assert log.verify().faults == ()
    assert log.prune(red.clock.now() - timedelta(days=30)) == 0


def test_what_a_home_records_is_copied_once_and_in_order(red: TeamFixture, tmp_path: Path) -> None:
    own = AuditLog(tmp_path / "audit.jsonl", SetClock())
    log = TeamAuditLog(red.database)
    first, second = AuditCopy(own.path, log), AuditCopy(own.path, log)
    first.run()
    for number in range(5):
        own.record("config_changed", "command line", {"number": number})
    first.run()
    second.run()
    with own.path.open("ab") as file:
        file.write(b"not JSON\n")
    own.record("approval", "ada", {})
    second.run()
    first.run()
    assert [entry.plain_details.get("number") for entry in log.all()] == [0, 1, 2, 3, 4, None]
    assert log.verify().ok
    other = AuditLog(tmp_path / "other.jsonl", SetClock())
    other.record("config_changed", "another home", {})
    AuditCopy(other.path, log).run()
    assert log.verify().entries == 7
