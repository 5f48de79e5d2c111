"""`retinue storage` and a memory whose index is in PostgreSQL, as a person or a script uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.storage.postgres.server import PostgresServer, read_migrations
from tests.cli.conftest import RunCommand
from tests.postgres import create_database


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
