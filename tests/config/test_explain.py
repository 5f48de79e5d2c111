"""Explaining a key, and showing values without secrets."""

from __future__ import annotations

import pytest

from retinue.config.explain import effective_value, explain
from retinue.config.keypath import parse_path
from retinue.config.keys import is_secret
from retinue.config.load import load_config
from retinue.core.errors import UsageError
from retinue.storage.home_paths import HomePaths
from tests.config.conftest import Write


def test_a_key_from_the_file(write: Write) -> None:
    home = write("{\n  agents: { defaults: { contextInjection: 'never' } } }")
    found = explain(load_config(home, {}), "agents.defaults.contextInjection")
    assert found.value == "never"
    assert found.origin == f"{home.config_file}:2"
    assert found.default == "always"
    assert found.allowed == ("always", "continuation-skip", "never")
    assert (found.reload, found.pending) == ("live", False)
    assert "files" in found.documentation


def test_a_key_from_the_defaults(home: HomePaths) -> None:
    found = explain(load_config(home, {}), "gateway.port")
    assert (found.value, found.origin, found.reload, found.pending) == (18_790, "default", "restart", False)
    assert found.type == "a whole number, at least 1 and at most 65535"


def test_a_key_from_the_environment(write: Write) -> None:
    home = write("{ agents: { defaults: { userTimezone: '${ZONE}' } } }")
    found = explain(load_config(home, {"ZONE": "UTC"}), "agents.defaults.userTimezone")
    assert (found.value, found.origin) == ("UTC", f"environment (ZONE) at {home.config_file}:1")


def test_the_workspace_of_a_profile(home: HomePaths) -> None:
    loaded = load_config(HomePaths(home.path, "work"), {})
    found = explain(loaded, "agents.defaults.workspace")
    assert (found.value, found.origin) == (str(home.path / "workspace"), "profile work")


def test_a_section_tells_its_keys(home: HomePaths) -> None:
    found = explain(load_config(home, {}), "memory")
    assert found.keys == ("backend", "citations", "qmd")
    assert found.type == "an object"


def test_an_agent_by_its_id(write: Write) -> None:
    loaded = load_config(write("{ agents: { list: [{ id: 'a' },\n { id: 'work', name: 'W' }] } }"), {})
    found = explain(loaded, "agents.list[id=work].name")
    assert (found.value, found.origin) == ("W", f"{loaded.home.config_file}:2")


def test_an_unknown_key_gets_the_nearest(home: HomePaths) -> None:
    with pytest.raises(UsageError, match=r"no key memory.citation. Did you mean memory.citations\?"):
        explain(load_config(home, {}), "memory.citation")


SECRETS = """{
  models: { providers: { x: { apiKey: 'sk-1', headers: { 'X-Auth': 'h-1' } } } },
  gateway: { auth: { token: 't-1', password: { source: 'env', id: 'PW' } } },
  hooks: { token: '${TOKEN}' },
  commands: { ownerDisplaySecret: 's-1' },
  skills: { entries: { gh: { apiKey: 'k-1', env: { GH: 'e-1' } } } },
  channels: { telegram: { botToken: 'b-1' } },
  env: { PLAIN: 'p-1', vars: { OTHER: 'o-1' } },
  plugins: { entries: { p: { config: { apiKey: 'c-1' } } } },
}"""


def test_no_secret_is_ever_shown(write: Write) -> None:
    loaded = load_config(write(SECRETS), {"TOKEN": "v-1"})
    assert not loaded.errors
    shown = str(effective_value(loaded))
    for secret in ("sk-1", "h-1", "t-1", "v-1", "s-1", "k-1", "e-1", "b-1", "p-1", "o-1", "c-1"):
        assert secret not in shown
    assert effective_value(loaded, "gateway.auth.password") == {"source": "env", "id": "PW"}
    assert effective_value(loaded, "gateway.auth.token") == "[redacted]"
    assert explain(loaded, "hooks.token").value == "[redacted]"


@pytest.mark.parametrize(
    "key",
    [
        "agents.defaults.compaction.reserveTokens",
        "agents.defaults.memorySearch.chunking.tokens",
        "session.mainKey",
        "commands.ownerDisplay",
        "env.shellEnv.enabled",
        "agents.list",
    ],
)
def test_ordinary_keys_are_no_secrets(key: str) -> None:
    assert not is_secret(parse_path(key))
