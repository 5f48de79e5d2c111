"""`retinue config` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue.cli.main import run
from retinue.core.keys import AgentId
from retinue.memory.settings import MemorySearchSettings
from retinue.runtime.agents.workspace import locate_workspace
from retinue.runtime.home import load_home
from retinue.storage.home_paths import HomePaths
from retinue.structs.decode import decode
from tests.config.conftest import Write


@pytest.fixture
def retinue(home: HomePaths, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["config", *arguments, "--home", str(home.path)])
        shown = capsys.readouterr()
        return code, shown.out.strip(), shown.err.strip()

    return call


def test_path(retinue: Any, home: HomePaths) -> None:
    assert retinue("path") == (0, str(home.config_file), "")
    assert json.loads(retinue("path", "--json")[1]) == {"path": str(home.config_file), "exists": False}


def test_set_get_unset(retinue: Any, home: HomePaths) -> None:
    code, out, _ = retinue("set", "agents.defaults.userTimezone", "Europe/Berlin")
    assert (code, out) == (0, f"agents.defaults.userTimezone set in {home.config_file}")
    assert retinue("get", "agents.defaults.userTimezone")[1] == "Europe/Berlin"
    assert retinue("set", "agents.defaults.userTimezone", "Europe/Berlin")[1].endswith("is unchanged.")
    assert json.loads(retinue("get", "agents.defaults.userTimezone", "--json")[1]) == "Europe/Berlin"
    assert retinue("unset", "agents.defaults.userTimezone")[0] == 0
    assert retinue("get", "agents.defaults.userTimezone")[1] == "null"


def test_get_everything_includes_the_defaults(retinue: Any) -> None:
    everything = json.loads(retinue("get")[1])
    assert everything["agents"]["defaults"]["bootstrapTotalMaxChars"] == 60_000


def test_a_negative_number_is_a_value(retinue: Any) -> None:
    code, _, err = retinue("set", "gateway.port", "-5")
    assert code == 1
    assert "got -5" in err


def test_an_unknown_key_is_a_usage_error_with_the_nearest(retinue: Any) -> None:
    for arguments in (("get", "memory.citation"), ("explain", "memory.citation"), ("set", "memory.citation", "x")):
        code, _, err = retinue(*arguments)
        assert code == 2
        assert "Did you mean memory.citations?" in err
    code, out, _ = retinue("get", "memory.citation", "--json")
    assert code == 2
    assert json.loads(out)["error"]["kind"] == "UsageError"


def test_validate_lists_errors_warnings_and_pending_keys(retinue: Any, write: Write) -> None:
    assert retinue("validate")[0] == 0
    home = write("{\n  bogus: 1,\n  commands: { nativeSkills: true },\n}")
    code, out, _ = retinue("validate")
    assert code == 0
    assert out.splitlines() == [
        f"warning: {home.config_file}:2: bogus: This key is not known and has no effect.",
        "Accepted, not used yet:",
        f"  commands.nativeSkills ({home.config_file}:3): the menus of channels have no skills yet",
        f"{home.config_file} is valid.",
    ]
    write("{ gateway: { port: 'x' } }")
    code, out, _ = retinue("validate", "--json")
    report = json.loads(out)
    assert (code, report["valid"], report["source"]) == (1, False, "last-good")
    assert report["errors"][0]["path"] == "gateway.port"
    assert report["errors"][0]["line"] == 1


def test_reading_a_broken_configuration_says_so(retinue: Any, write: Write) -> None:
    write("{")
    code, out, err = retinue("get", "memory.citations")
    assert (code, out) == (0, "auto")
    assert "expected a key or '}'" in err


def test_explain(retinue: Any) -> None:
    code, out, _ = retinue("explain", "memory.citations")
    assert code == 0
    assert 'takes    one of "auto", "on", "off"' in out
    assert "from     default" in out
    assert json.loads(retinue("explain", "memory.citations", "--json")[1])["default"] == "auto"


@pytest.mark.slow
def test_schema_has_descriptions(retinue: Any) -> None:
    whole = json.loads(retinue("schema")[1])
    assert whole["properties"]["agents"]["description"]
    part = json.loads(retinue("schema", "agents.defaults.bootstrapMaxChars")[1])
    assert part["type"] == "integer"
    assert "characters" in part["description"]
    section = json.loads(retinue("schema", "memory")[1])
    assert section["properties"]["citations"]["description"]


def test_missing_arguments_are_usage_errors(retinue: Any) -> None:
    assert retinue("set", "memory.citations")[0] == 2
    assert retinue("explain")[0] == 2


NAMES = """{
  tools: {
    allow: ["read", "exce", "bash", "mem*", "zzz*"],
    sandbox: { tools: { deny: ["wirte"] } },
    agentToAgent: { allow: ["*", "wroker"] },
  },
  agents: {
    list: [
      { id: "worker", tools: { deny: ["grop", "group:runtim"] }, subagents: { allowAgents: ["worker", "boss"] } },
    ],
  },
  gateway: { tools: { deny: ["web_fetsh"] } },
  plugins: { deny: ["weather"], slots: { contextEngine: "defualt" } },
  bindings: [{ agentId: "workr", match: { channel: "http" } }],
}"""


def test_a_name_in_a_list_that_does_not_exist_is_reported_with_the_nearest(retinue: Any, write: Write) -> None:
    write(NAMES)
    code, out, _ = retinue("validate", "--json")
    found = {problem["path"]: problem["message"] for problem in json.loads(out)["warnings"]}
    assert code == 0
    assert found == {
        "tools.allow[1]": "There is no tool 'exce', so this has no effect. Did you mean exec?",
        "tools.allow[4]": "There is no tool 'zzz*', so this has no effect. `retinue tools list` lists the tools.",
        "tools.sandbox.tools.deny[0]": "There is no tool 'wirte', so this has no effect. Did you mean write?",
        "tools.agentToAgent.allow[1]": "There is no agent 'wroker', so this has no effect. Did you mean worker?",
        "agents.list[0].tools.deny[0]": "There is no tool 'grop', so this has no effect. Did you mean grep?",
        "agents.list[0].tools.deny[1]": "There is no group of tools 'group:runtim', so this has no effect. "
        "Did you mean group:runtime?",
        "agents.list[0].subagents.allowAgents[1]": "There is no agent 'boss', so this has no effect. "
        "`retinue agents list` lists the agents.",
        "gateway.tools.deny[0]": "There is no tool 'web_fetsh', so this has no effect. Did you mean web_fetch?",
        "plugins.deny[0]": "There is no plugin 'weather', so this has no effect. "
        "`retinue plugins list` lists the plugins.",
        "plugins.slots.contextEngine": "There is no context engine 'defualt', so this has no effect. "
        "Did you mean default?",
        "bindings[0].agentId": "There is no agent 'workr', so this has no effect. Did you mean worker?",
    }


def test_a_skill_in_a_list_that_does_not_exist_is_reported(retinue: Any, write: Write, home: HomePaths) -> None:
    write('{ agents: { defaults: { skills: ["todo", "wether"] } } }')
    assert json.loads(retinue("validate", "--json")[1])["warnings"] == []  # there is no workspace yet
    run(["init", "--home", str(home.path), "--quiet"])
    retinue("path")
    (warning,) = json.loads(retinue("validate", "--json")[1])["warnings"]
    assert warning["message"] == "There is no skill 'wether', so this has no effect. Did you mean weather?"


def test_keys_that_are_not_used_yet_are_listed_with_their_reason(retinue: Any, write: Write) -> None:
    write("{ browser: { enabled: true } }")
    assert json.loads(retinue("validate", "--json")[1])["pending"] == [
        {"path": "browser", "reason": "agents have no browser tool yet"}
    ]
    assert "accepted, not used yet: agents have no browser tool yet" in retinue("explain", "browser")[1]


UNSUPPORTED = """{
  meta: { lastTouchedVersion: "1" },
  wizard: { lastRunAt: "x" },
  session: { store: "/tmp/x" },
  agents: { list: [{ id: "main", sandbox: { browser: {} } }] },
  plugins: { entries: { desk: { subagent: { allowedModels: [] } } } },
}"""


def test_a_key_of_openclaw_that_retinue_does_not_have_is_reported_with_the_reason(retinue: Any, write: Write) -> None:
    write(UNSUPPORTED)
    found = {row["path"]: row["message"] for row in json.loads(retinue("validate", "--json")[1])["warnings"]}
    start = "Retinue does not have this key of OpenClaw, so it has no effect: "
    assert found == {
        "session.store": f"{start}the index is always beside the transcripts.",
        "agents.list[0].sandbox.browser": f"{start}agents have no browser tool yet.",
        "plugins.entries.desk.subagent": f"{start}plugins cannot start sub-agents.",
    }


QUESTIONABLE = """{
  agents: {
    defaults: {
      userTimezone: "Europe/Vena",
      workspace: " ",
      memorySearch: { store: { path: "  " } },
      heartbeat: { activeHours: { start: "08:00", end: "22:00", timezone: "Mars" } },
    },
    list: [{ id: "a", default: true }, { id: "b" }, { id: "c", default: true }],
  },
  channels: { http: { accounts: { desk: { webhokUrl: "http://127.0.0.1:1/", enabled: true } } } },
}"""


def test_values_that_do_not_mean_what_they_seem_to_are_reported(
    retinue: Any, write: Write, home: HomePaths, tmp_path: Path
) -> None:
    write(QUESTIONABLE)
    found = {row["path"]: row["message"] for row in json.loads(retinue("validate", "--json")[1])["warnings"]}
    blank = "This path is blank, so the default is used. Remove the key or name a folder."
    assert found == {
        "agents.defaults.userTimezone": "There is no time zone 'Europe/Vena'. Did you mean Europe/Vienna?",
        "agents.defaults.workspace": blank,
        "agents.defaults.memorySearch.store.path": blank,
        "agents.defaults.heartbeat.activeHours.timezone": "There is no time zone 'Mars'. "
        "Use a name such as Europe/Vienna.",
        "agents.list[2].default": "agents.list[0].default is true as well, and only that agent is the default.",
        "channels.http.accounts.desk.webhokUrl": "This key is not known and has no effect. "
        "Did you mean channels.http.accounts.desk.webhookUrl?",
    }
    loaded = load_home(home, environment={"HOME": str(tmp_path)})
    assert locate_workspace(loaded, AgentId("a")) == home.path / "workspace"
    assert loaded.config.agents.default_id == "a"


def test_the_path_of_a_memory_index_is_relative_to_the_home(tmp_path: Path) -> None:
    settings = decode(MemorySearchSettings, {"store": {"path": "indexes/{agentId}.sqlite"}})
    assert settings.index_file(tmp_path, "a") == tmp_path / "indexes" / "a.sqlite"
    absolute = decode(MemorySearchSettings, {"store": {"path": "/var/x.sqlite"}})
    assert absolute.index_file(tmp_path, "a") == Path("/var/x.sqlite")
