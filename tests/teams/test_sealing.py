"""Secrets of a team are encrypted with a key that is not in the database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from retinue.core.errors import ConfigError, UsageError
from retinue.security.secrets import Secrets
from retinue.structs.decode import decode
from retinue.teams.sealing import Seal, TeamSecretStore
from retinue.teams.settings import TeamsSettings
from tests.teams.conftest import Database, TeamFixture

KEY, OTHER = "first key of at least 32 characters", "another key of at least 32 characters"


def test_a_secret_is_read_back_and_is_not_in_the_database(
    database: Database, red: TeamFixture, blue: TeamFixture
) -> None:
    store = TeamSecretStore(red.database, Seal("red", [KEY]))
    store.set("openai", "sk-very-secret-value", "ada")
    store.set("openai", "sk-replaced-secret-value", "bob")
    assert store.read("openai") == "sk-replaced-secret-value"
    assert [(found.name, found.changed_by) for found in store.list()] == [("openai", "bob")]
    with psycopg.connect(database.url) as connected:
        connected.execute("SELECT set_config('app.team', 'red', true)")
        (row,) = connected.execute("SELECT sealed FROM team_secret").fetchall()
    assert b"secret" not in bytes(row[0])
    assert TeamSecretStore(blue.database, Seal("blue", [KEY])).list() == ()
    store.remove("openai")
    with pytest.raises(UsageError, match="There is no secret"):
        store.read("openai")
    with pytest.raises(UsageError, match="There is no secret"):
        store.remove("openai")


def test_a_row_of_another_team_another_name_or_a_changed_one_cannot_be_decrypted() -> None:
    seal = Seal("red", [KEY])
    sealed = seal.seal("openai", "value")
    assert seal.open("openai", sealed) == "value"
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    attempts: tuple[Callable[[], str], ...] = (
        lambda: Seal("blue", [KEY]).open("openai", sealed),
        lambda: seal.open("anthropic", sealed),
        lambda: Seal("red", [OTHER]).open("openai", sealed),
        lambda: seal.open("openai", changed),
        lambda: seal.open("openai", b""),
        lambda: seal.open("openai", b"\x02" + sealed[1:]),
    )
    for opened in attempts:
        with pytest.raises(ConfigError, match="another key"):
            opened()
    assert seal.seal("openai", "value") != sealed


def test_keys_are_replaced_without_losing_secrets(red: TeamFixture) -> None:
    TeamSecretStore(red.database, Seal("red", [KEY])).set("a", "value", "ada")
    rotating = TeamSecretStore(red.database, Seal("red", [OTHER, KEY]))
    assert rotating.read("a") == "value"
    assert rotating.rotate() == 1
    assert TeamSecretStore(red.database, Seal("red", [OTHER])).read("a") == "value"
    with pytest.raises(ConfigError, match="another key"):
        TeamSecretStore(red.database, Seal("red", [KEY])).read("a")


def test_the_key_comes_from_the_environment_a_file_or_a_program(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    sealed = Seal("red", [KEY]).seal("a", "value")
    for source in (
        {"source": "env", "id": "TEAM_KEY"},
        {"source": "file", "path": str(tmp_path / "key")},
        {"source": "exec", "command": ["cat", str(tmp_path / "key")]},
    ):
        settings = decode(TeamsSettings, {"encryptionKey": source})
        assert (
            Seal.of("red", settings, Secrets({"TEAM_KEY": KEY, "PATH": "/usr/bin:/bin"})).open("a", sealed) == "value"
        )
    with pytest.raises(ConfigError, match="not set"):
        Seal.of("red", TeamsSettings(), Secrets({}))
    with pytest.raises(ConfigError, match="too short"):
        Seal("red", ["short"])
