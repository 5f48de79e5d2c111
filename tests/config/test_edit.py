"""Editing the configuration: the right file, only valid results, and nothing lost on the way."""

from __future__ import annotations

import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.config.edit import Change, change_values, set_value, unset_value
from retinue.config.load import load_config
from retinue.core.errors import ConfigError, StorageError, UsageError
from retinue.storage.home_paths import HomePaths
from tests.config.conftest import Write

SAMPLE = """\
{
  // the agents
  agents: {
    defaults: { workspace: '${ROOT}/main' }, // where main lives
    list: [{ id: 'main' }, { id: 'work' }],
  },
}
"""


def test_a_new_file_is_private(home: HomePaths) -> None:
    edited = set_value(home, "agents.defaults.bootstrapMaxChars", "5", {})
    assert edited.changed
    assert (
        home.config_file.read_text() == "{\n  agents: {\n    defaults: {\n      bootstrapMaxChars: 5\n    }\n  }\n}\n"
    )
    assert stat.S_IMODE(home.config_file.stat().st_mode) == 0o600


def test_a_home_that_does_not_exist_is_made(tmp_path: Path) -> None:
    home = HomePaths(tmp_path / "deep" / "home")
    set_value(home, "memory.citations", "off", {})
    assert load_config(home, {}).config.memory.citations == "off"
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700


def test_comments_and_variables_stay_and_the_mode_becomes_private(write: Write) -> None:
    home = write(SAMPLE)
    home.config_file.chmod(0o644)
    set_value(home, "agents.list[id=work].name", "Worker", {"ROOT": "/secret/place"})
    text = home.config_file.read_text()
    assert text == SAMPLE.replace("{ id: 'work' }", "{ id: 'work', name: 'Worker' }")
    assert stat.S_IMODE(home.config_file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("key", "typed", "stored"),
    [
        ("agents.defaults.timeFormat", "24", '"24"'),
        ("agents.defaults.timeFormat", '"24"', '"24"'),
        ("agents.defaults.userTimezone", "Europe/Berlin", '"Europe/Berlin"'),
        ("agents.defaults.skills", "['a', 'b']", '["a", "b"]'),
        ("agents.defaults.skipBootstrap", "true", "true"),
        ("agents.defaults.heartbeat.every", "45m", '"45m"'),
        ("agents.defaults.heartbeat.every", "45", "45"),
        ("commands.ownerAllowFrom[0]", "12345", '"12345"'),
        ("models.providers.x.baseUrl", "http://127.0.0.1:1/v1", '"http://127.0.0.1:1/v1"'),
        ("models.providers.x.apiKey", "${KEY}", '"${KEY}"'),
    ],
)
def test_values_are_json5_or_text(home: HomePaths, key: str, typed: str, stored: str) -> None:
    set_value(home, key, typed, {"KEY": "k"})
    assert f": {stored}\n" in home.config_file.read_text() or f": [{stored}]\n" in home.config_file.read_text()


def test_the_same_value_writes_nothing(write: Write) -> None:
    home = write(SAMPLE)
    before = home.config_file.stat()
    assert not set_value(home, "agents.list[0].id", "main", {}).changed
    assert home.config_file.stat().st_ino == before.st_ino


def test_unsetting_brings_the_default_back(write: Write) -> None:
    home = write("{\n  memory: { citations: 'on' }, // mine\n  bogus: 1,\n}\n")
    unset_value(home, "memory.citations", {})
    assert load_config(home, {}).config.memory.citations == "auto"
    unset_value(home, "bogus", {})
    assert home.config_file.read_text() == "{\n  memory: {}, // mine\n}\n"


def test_unsetting_what_is_not_set_is_an_error(write: Write) -> None:
    with pytest.raises(UsageError, match=r"memory\.citations is not set"):
        unset_value(write(SAMPLE), "memory.citations", {})


@pytest.mark.parametrize(
    ("key", "value", "error", "expected"),
    [
        ("agents.defaults.bootstrapMaxChars", "-5", ConfigError, "a whole number, at least 1, got -5"),
        ("agents.defaults.bootstrapMaxChars", "many", ConfigError, 'got "many"'),
        ("agents.list[0]", "{}", ConfigError, "'id' is missing here"),
        ("agents.list[1].id", "main", ConfigError, "more than one agent with the id 'main'"),
        ("agents.list[0].skipBootstrap", "true", UsageError, "There is no key agents.list"),
        ("agents.defaults.bootstrapMaxChar", "5", UsageError, "Did you mean agents.defaults.bootstrapMaxChars"),
        ("agents.list[id=home].name", "x", UsageError, "No item of agents.list has id 'home'"),
        ("agents.list[5].id", "x", ConfigError, "agents.list has 2 items"),
        ("agents.defaults.skills", "[", UsageError, "The value is not JSON5"),
        ("agents..x", "1", UsageError, "is not the name of a key"),
        ("gateway.auth", '{"token": "[redacted]"}', UsageError, "shown instead of a secret"),
    ],
)
def test_edits_that_are_refused(write: Write, key: str, value: str, error: type[Exception], expected: str) -> None:
    home = write(SAMPLE)
    with pytest.raises(error, match=expected.replace("[", r"\[")):
        set_value(home, key, value, {"ROOT": "/"})
    assert home.config_file.read_text() == SAMPLE


def test_unsetting_what_is_required_is_refused(write: Write) -> None:
    home = write(SAMPLE)
    with pytest.raises(ConfigError, match="'id' is missing here"):
        unset_value(home, "agents.list[id=work].id", {"ROOT": "/"})
    assert home.config_file.read_text() == SAMPLE


def test_one_of_two_errors_can_be_repaired(write: Write) -> None:
    home = write("{ gateway: { port: 'x', bind: 'y' } }")
    set_value(home, "gateway.port", "1234", {})
    set_value(home, "gateway.bind", "lan", {})
    assert load_config(home, {}).source == "file"


@pytest.mark.parametrize("text", ["{ a: ", "\x00", "[]"])
def test_a_broken_file_is_not_edited(write: Write, text: str) -> None:
    home = write(text)
    with pytest.raises(ConfigError, match="cannot be edited before it is repaired"):
        set_value(home, "memory.citations", "on", {})
    assert home.config_file.read_text() == text


def test_an_included_key_is_edited_where_it_lives(write: Write) -> None:
    main = "{\n  agents: { $include: 'agents.json5', defaults: { userTimezone: 'UTC' } },\n}\n"
    home = write(main)
    included = home.path / "agents.json5"
    included.write_text("{\n  // theirs\n  list: [{ id: 'a' }],\n}\n")
    assert set_value(home, "agents.list[0].name", "A", {}).file == included
    assert included.read_text() == "{\n  // theirs\n  list: [{ id: 'a', name: 'A' }],\n}\n"
    assert home.config_file.read_text() == main
    assert set_value(home, "agents.defaults.timeFormat", "12", {}).file == home.config_file
    assert "timeFormat: '12'" in home.config_file.read_text()


def test_an_edit_of_an_included_file_is_validated_first(write: Write) -> None:
    home = write("{ agents: { list: { $include: 'list.json5' } } }")
    (home.path / "list.json5").write_text("[{ id: 'a' }]")
    with pytest.raises(ConfigError, match="Nothing was changed"):
        set_value(home, "agents.list[0].model", "5.5e3", {})
    assert (home.path / "list.json5").read_text() == "[{ id: 'a' }]"


def test_changes_of_several_files_are_made_together_or_not_at_all(write: Write) -> None:
    home = write("{ agents: { $include: './agents.json5' }, gateway: { port: 1000 } }")
    included = home.path / "agents.json5"
    included.write_text("{ defaults: { maxConcurrent: 2 } }")
    before = [path.read_text() for path in (home.config_file, included)]
    port, name = Change("gateway.port", "2000"), Change("agents.list", "[{ id: 'work' }]")
    for refused in (Change("gateway.port", "none"), Change("gateway.bind", None), Change("gateway.prot", "1")):
        with pytest.raises((ConfigError, UsageError), match=r"gateway\."):
            change_values(home, [port, name, refused], {})
        assert [path.read_text() for path in (home.config_file, included)] == before
    edits = change_values(home, [port, name, Change("agents.list[id=work].name", "Worker"), port], {})
    assert [(edit.file.name, edit.changed) for edit in edits] == [
        ("retinue.json", True),
        ("agents.json5", True),
        ("agents.json5", True),
        ("retinue.json", False),
    ]
    config = load_config(home, {}).config
    assert (config.gateway.port, config.agents.resolve("work").name) == (2000, "Worker")


def test_a_link_stays_a_link(home: HomePaths, tmp_path: Path) -> None:
    elsewhere = tmp_path / "dotfiles.json"
    elsewhere.write_text("{}")
    home.config_file.symlink_to(elsewhere)
    set_value(home, "memory.citations", "on", {})
    assert home.config_file.is_symlink()
    assert "citations" in elsewhere.read_text()


def test_windows_lines_and_byte_order_mark_stay(write: Write) -> None:
    home = write("\ufeff{\r\n  memory: { citations: 'on' },\r\n}\r\n")
    set_value(home, "cron.enabled", "false", {})
    expected = "\ufeff{\r\n  memory: { citations: 'on' },\r\n  cron: {\r\n    enabled: false\r\n  },\r\n}\r\n"
    assert home.config_file.read_bytes().decode() == expected


def test_a_read_only_home_is_a_clear_error(read_only_home: HomePaths) -> None:
    before = read_only_home.config_file.read_text()
    with pytest.raises(StorageError, match="read-only"):
        set_value(read_only_home, "memory.citations", "on", {})
    assert read_only_home.config_file.read_text() == before


@pytest.mark.slow
def test_a_full_disk_is_a_clear_error_and_the_old_content_stays(write: Write) -> None:
    home = write(SAMPLE)
    done = subprocess.run(
        # Without -B the limit would cut off bytecode, which later processes cannot read.
        [sys.executable, "-B", "-m", "retinue", "config", "set", "memory.citations", "on", "--home", home.path],
        capture_output=True,
        text=True,
        # A file size limit stops the write half-way, as a full disk does, and needs no privileges.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16)),
    )
    assert done.returncode == 1
    assert "could not be written" in done.stderr
    assert home.config_file.read_text() == SAMPLE
    assert [each.name for each in home.path.iterdir()] == ["retinue.json"]
