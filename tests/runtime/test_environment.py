"""Variables that the configuration adds to the environment, and keys that the login shell has."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from retinue.runtime.home import Home, load_home, missing_keys
from retinue.storage.home_paths import HomePaths
from retinue.testing.replies import calls, says
from tests.runtime.conftest import staged


def foundation(path: Path, config: dict[str, Any], **environment: str) -> Home:
    home = HomePaths(path / "home")
    home.path.mkdir(exist_ok=True)
    home.config_file.write_text(json.dumps(config))
    return load_home(home, environment={"HOME": str(path), "PATH": "/usr/bin:/bin", **environment})


def test_variables_of_the_configuration_are_there_unless_they_are_set_already(tmp_path: Path) -> None:
    env = {"vars": {"GROQ_API_KEY": "from-the-file", "MISTRAL_API_KEY": "from-the-file"}, "OPENAI_API_KEY": "beside"}
    laid = foundation(tmp_path, {"env": env}, MISTRAL_API_KEY="from-outside")
    names = ("GROQ_API_KEY", "MISTRAL_API_KEY", "OPENAI_API_KEY")
    assert [laid.environment[name] for name in names] == ["from-the-file", "from-outside", "beside"]
    assert not laid.inherited.keys() & {"GROQ_API_KEY", "OPENAI_API_KEY"}


def test_the_file_can_use_its_own_variables(tmp_path: Path) -> None:
    config = {"env": {"vars": {"PLACE": "${BASE}/v1"}}, "models": {"providers": {"own": {"baseUrl": "${PLACE}"}}}}
    laid = foundation(tmp_path, config, BASE="http://127.0.0.1:9")
    assert not laid.loaded.problems
    assert laid.config.models.providers["own"].base_url == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "PYTHONPATH", "HTTPS_PROXY", "RETINUE_HOME", "not a name"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_variable_that_decides_what_programs_load_is_left_out_and_told(
    tmp_path: Path, name: str, *, inside: bool
) -> None:
    laid = foundation(tmp_path, {"env": {"vars": {name: "/tmp/evil"}} if inside else {name: "/tmp/evil"}})
    assert "/tmp/evil" not in laid.environment.values()
    (problem,) = laid.loaded.warnings
    assert f"The variable {name} " in problem.message


@pytest.mark.anyio
async def test_a_key_of_the_configuration_is_used_and_not_given_to_commands(tmp_path: Path) -> None:
    config = {
        "env": {"vars": {"OWN_KEY": "key-of-the-file-0123456789"}},
        "models": {"providers": {"test": {"apiKey": {"source": "env", "id": "OWN_KEY"}}}},
        "tools": {"exec": {"security": "full", "ask": "off"}},
    }
    replies = (calls("exec", command="env"), says("Done."))
    async with staged(tmp_path, *replies, config=config) as stage:
        (reply,) = await stage.ask("show the environment")
        assert [call.is_error for call in reply.calls] == [False]
        first, last = stage.server.model_requests
        assert first.headers["authorization"] == "Bearer key-of-the-file-0123456789"
        assert "OWN_KEY" not in json.dumps(last.json["messages"])


def login_shell(path: Path, script: str) -> str:
    """A stand-in for the person's shell; it is called as `shell -l -c …`."""
    shell = path / "shell"
    shell.write_text(f"#!/bin/sh\n{script}\n")
    shell.chmod(0o755)
    return str(shell)


def test_missing_keys_come_from_the_login_shell(tmp_path: Path) -> None:
    script = """echo welcome; export GROQ_API_KEY=shell-groq MISTRAL_API_KEY=shell-mistral EVIL=1 LD_PRELOAD=/x
    [ "$1" = -l ] && unset LD_PRELOAD && exec /bin/sh -c "$3" """
    shell = login_shell(tmp_path, script)
    environment = {"SHELL": shell, "PATH": "/usr/bin:/bin", "MISTRAL_API_KEY": "mine", "SECRET": "kept from the shell"}
    assert missing_keys(environment, 30) == {"GROQ_API_KEY": "shell-groq"}


def test_a_shell_gets_only_what_it_needs_to_start(tmp_path: Path) -> None:
    shell = login_shell(tmp_path, 'env > "$HOME/seen"; exec /bin/sh -c "$3"')
    missing_keys({"SHELL": shell, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "SECRET": "x"}, 30)
    assert "SECRET" not in (tmp_path / "seen").read_text()


@pytest.mark.parametrize("script", ["sleep 600", "exit 3", "printf x; sleep 600 & exit 0", "yes | head -c 300000"])
def test_a_shell_that_fails_or_takes_long_costs_nothing_but_its_time(tmp_path: Path, script: str) -> None:
    begun = time.monotonic()
    assert missing_keys({"SHELL": login_shell(tmp_path, script), "PATH": "/usr/bin:/bin"}, 0.3) == {}
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("enabled", [True, False])
def test_the_shell_is_asked_only_where_that_is_wanted(tmp_path: Path, *, enabled: bool) -> None:
    shell = login_shell(tmp_path, 'export GROQ_API_KEY=shell-groq; exec /bin/sh -c "$3"')
    laid = foundation(tmp_path, {"env": {"shellEnv": {"enabled": enabled, "timeoutMs": 30_000}}}, SHELL=shell)
    assert laid.environment.get("GROQ_API_KEY") == ("shell-groq" if enabled else None)
