"""`retinue storage` and a memory whose index is in PostgreSQL, as a person or a script uses them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from retinue.core.envelope import Inbound
from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.core.messages import Usage
from retinue.dispatch.inbox import Inbox
from retinue.gateway.auth.tokens import TokenStore
from retinue.runtime.agents.workspace import open_sessions
from retinue.runtime.home import load_home
from retinue.storage.home_paths import HomePaths
from retinue.storage.postgres.server import PostgresServer, read_migrations
from tests.cli.conftest import RunCommand
from tests.postgres import create_database, create_team_database
from tests.sessions.builders import answer, user


def test_without_an_address_everything_is_in_files(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    assert retinue("storage", "status", "--json").data == {
        "driver": "sqlite",
        "schema": None,
        "pending": [],
        "counts": {},
    }
    assert "`storage.url` is not set" in retinue("storage", "migrate", "--json").data["error"]["message"]


@pytest.mark.slow
def test_notes_are_indexed_and_found_in_postgresql(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retinue("init", "--yes")
    (home / "workspace" / "memory").mkdir(exist_ok=True)
    (home / "workspace" / "memory" / "2023-04-01.md").write_text("# Log\n\nThe wifi code is XK-4471-QQ.\n")
    monkeypatch.setenv("STORAGE_URL", create_database(empty=True))
    retinue("config", "set", "storage.url", '{"source": "env", "id": "STORAGE_URL"}')
    before = retinue("storage", "status", "--json").data
    newest = read_migrations()[-1]
    assert (before["driver"], before["schema"]) == ("postgres", 0)
    assert f"{newest.number:04}_{newest.name}" in before["pending"]
    refused = retinue("memory", "search", "wifi", "--json")
    assert "retinue storage migrate" in refused.data["error"]["message"]

    migrated = retinue("storage", "migrate", "--json").data
    assert (migrated["schema"], migrated["pending"]) == (newest.number, [])
    assert retinue("storage", "migrate", "--json").data == migrated
    (hit,) = [hit for hit in retinue("memory", "search", "wifi code", "--json").data if "XK-4471" in hit["snippet"]]
    assert hit["path"] == "memory/2023-04-01.md"
    assert retinue("storage", "status", "--json").data["counts"]["memory_file"] >= 1
    assert not list((home / "memory").glob("*.sqlite"))
    assert retinue("doctor", "--json").code in (0, 1)
    assert retinue("status", "--json").data["agents"][0]["memory"]["state"] == "in PostgreSQL"


@pytest.mark.slow
def test_agents_of_two_teams_with_the_same_name_have_an_index_each(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    (home / "workspace" / "memory").mkdir(exist_ok=True)
    note = home / "workspace" / "memory" / "2023-04-01.md"
    url = create_team_database("red", "blue")
    retinue("config", "set", "storage.url", url)
    for team, word in (("red", "XK-4471"), ("blue", "QQ-9910")):
        retinue("config", "set", "teams.team", team)
        note.write_text(f"# Log\n\nThe wifi code is {word}.\n")
        assert word in str(retinue("memory", "search", "wifi code", "--json").data)
        assert retinue("storage", "status", "--json").data["counts"]["memory_index"] == 1
    with psycopg.connect(url) as base:
        for team, word in (("red", "XK-4471"), ("blue", "QQ-9910")):
            base.execute("SELECT set_config('app.team', %s, false)", (team,))
            assert base.execute("SELECT name FROM memory_index").fetchall() == [(f"{team}/main",)]
            found = base.execute("SELECT text FROM memory_chunk WHERE text LIKE '%wifi%'").fetchall()
            assert [word in text for (text,) in found] == [True]


@pytest.mark.slow
def test_a_server_that_does_not_answer_and_wrong_addresses_say_what_to_do(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    retinue("config", "set", "storage.url", "nonsense address")
    assert "postgresql://" in retinue("storage", "status", "--json").data["error"]["message"]
    retinue("config", "set", "storage.url", "postgresql://nobody@127.0.0.1:9/none")
    assert "storage.url" in retinue("storage", "status", "--json").data["error"]["message"]


@pytest.mark.slow
def test_a_database_of_a_newer_version_is_refused(retinue: RunCommand, home: Path) -> None:
    url = create_database()
    server = PostgresServer(url)
    with server.connection() as connection:
        connection.execute("INSERT INTO schema_migration (number, name) VALUES (9999, 'later')")
    server.close()
    retinue("init", "--yes")
    retinue("config", "set", "storage.url", url)
    assert "Update Retinue" in retinue("memory", "search", "wifi", "--json").data["error"]["message"]


def fill(home: Path) -> None:
    """A home with sessions, an archive and rows."""
    loaded = load_home(HomePaths(home))
    store = open_sessions(loaded, DEFAULT_AGENT)
    for name in ("agent:main:main", "agent:main:ideas"):
        transcript = store.open(SessionKey.parse(name))
        transcript.append(user("Hello"))
        transcript.append(answer("Hi", usage=Usage(10, 5, 2, 1, 0.125)))
    store.reset(SessionKey.parse("agent:main:ideas"))
    old = store.open(SessionKey.parse("agent:main:old"))
    old.append(answer("Forgotten", usage=Usage(1, 1)))
    store.remove(store.delete(SessionKey.parse("agent:main:old")))
    store.settle_all()
    with closing(loaded.open_state()) as database:
        inbox = Inbox(database, loaded.clock)
        for number in range(3):
            inbox.accept(Inbound(f"message {number}", SessionKey.parse("agent:main:main")), RunId(f"r{number}"))


@pytest.mark.slow
def test_a_home_moves_to_postgresql_and_back(retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    retinue("init", "--yes")
    fill(home)
    before = {path: path.read_bytes() for path in (home / "agents").rglob("*/sessions/*.jsonl*")}
    listed = retinue("sessions", "list", "--json").data
    url = create_database()
    done = retinue("storage", "move", "--to", url, "--verify", "--json").data
    assert (done["sessions"], done["archives"], done["rows"]["inbox"], done["verified"]) == (2, 1, 3, True)
    again = retinue("storage", "move", "--to", url, "--verify", "--json").data
    assert (again["sessions"], again["archives"], again["skipped"], again["verified"]) == (0, 0, 3, True)
    assert {path: path.read_bytes() for path in (home / "agents").rglob("*/sessions/*.jsonl*")} == before

    monkeypatch.setenv("STORAGE_URL", url)
    retinue("config", "set", "storage.url", '{"source": "env", "id": "STORAGE_URL"}')
    assert retinue("sessions", "list", "--json").data == listed
    usage = retinue("usage", "--json").data["groups"]
    assert "Hello" in retinue("sessions", "export", "main", "--json").out
    assert retinue("cluster", "status", "--json").data["queues"] == {"waiting": 3, "claimed": 0}
    fill_more = open_sessions(load_home(HomePaths(home)), DEFAULT_AGENT)
    fill_more.open(SessionKey.parse("agent:main:new")).append(user("In the database"))

    back = retinue("storage", "move", "--to", "files", "--verify", "--json").data
    assert (back["sessions"], back["archives"], back["rows"]["inbox"], back["verified"]) == (3, 1, 3, True)
    retinue("config", "unset", "storage.url")
    assert len(retinue("sessions", "list", "--json").data) == 3
    assert retinue("usage", "--json").data["groups"] == usage
    after = {path.name: path.read_bytes() for path in (home / "agents").rglob("*/sessions/*.jsonl*")}
    assert {name: after[name] for name in (path.name for path in before)} == {p.name: b for p, b in before.items()}


@pytest.mark.slow
def test_tokens_are_created_and_revoked_where_the_gateways_look_them_up(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    retinue("config", "set", "storage.url", create_database())
    created = retinue("gateway", "token", "create", "--name", "laptop", "--json").data
    code = retinue("gateway", "pair", "--json").data["code"]
    loaded = load_home(HomePaths(home))
    with closing(loaded.open_state()) as database:
        tokens = TokenStore(database, loaded.clock)
        assert [(each.id, each.name) for each in tokens.list()] == [(created["id"], "laptop")]
        assert tokens.redeem(code, "phone") is not None
    assert [each["name"] for each in retinue("gateway", "devices", "list", "--json").data["paired"]] == ["phone"]
    retinue("gateway", "token", "revoke", "laptop")
    (listed,) = [each for each in retinue("gateway", "token", "list", "--json").data if each["name"] == "laptop"]
    assert listed["state"] == "revoked"


@pytest.mark.slow
def test_a_backup_says_that_the_database_is_not_in_it(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    assert "pg_dump" not in retinue("backup", "create").err
    retinue("config", "set", "storage.url", create_database())
    for options in ((), ("--agent", "main")):
        assert "pg_dump" in retinue("backup", "create", *options).err


@pytest.mark.slow
def test_a_move_that_cannot_be_made_says_why(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    for to, why in (
        ("files", "in files already"),
        ("nonsense", "--to needs"),
        (create_database(empty=True), "migrate"),
    ):
        refused = retinue("storage", "move", "--to", to, "--json")
        assert refused.code != 0
        assert why in refused.data["error"]["message"]
    assert "storage.url" in retinue("cluster", "status", "--json").data["error"]["message"]
