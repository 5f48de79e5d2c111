"""Bundles of Claude Code, Codex, Cursor and Agent Plugins: what of them is used, and when their programs run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.plugins.registry import PluginState
from retinue.runtime.home import Home, load_home
from retinue.runtime.inspect.plugins import check_targets
from retinue.storage.home_paths import HomePaths
from retinue.testing.replies import calls, says
from tests.cli.conftest import RunCommand
from tests.cli.conftest import home as home
from tests.cli.conftest import retinue as retinue
from tests.runtime.conftest import Stage
from tests.runtime.conftest import stage as stage

pytestmark = pytest.mark.anyio

GUARD = f"""#!{sys.executable}
import json, os, sys
event = json.load(sys.stdin)
with open(os.path.join(os.environ["CLAUDE_PLUGIN_ROOT"], "log.jsonl"), "a") as log:
    log.write(json.dumps(event) + "\\n")
if "forbidden" in json.dumps(event.get("tool_input", "")):
    print("not in this house", file=sys.stderr)
    sys.exit(2)
if "denied" in json.dumps(event.get("tool_input", "")):
    print(json.dumps({{"hookSpecificOutput": {{"permissionDecision": "deny", "permissionDecisionReason": "policy"}}}}))
"""


def write_bundle(folder: Path, manifest: str = ".claude-plugin/plugin.json", **declared: Any) -> Path:
    """Write a bundle with a skill, a command, two MCP servers and hook programs."""
    files = {
        "skills/tidy/SKILL.md": "---\nname: tidy\ndescription: Tidy the desk.\n---\nPut things away.\n",
        "commands/deploy.md": "Deploy $ARGUMENTS.\n",
        ".mcp.json": json.dumps(
            {
                "mcpServers": {
                    "files": {"command": "${CLAUDE_PLUGIN_ROOT}/server", "args": ["--data", "${PLUGIN_ROOT}/x"]},
                    "web": {"type": "http", "url": "http://127.0.0.1:1/mcp"},
                }
            }
        ),
        "hooks/hooks.json": json.dumps(
            {
                "hooks": {
                    "PreToolUse": [{"matcher": "Write|Bash", "hooks": [{"type": "command", "command": "./guard"}]}],
                    "PostToolUse": [{"matcher": "*", "hooks": [{"command": "${CLAUDE_PLUGIN_ROOT}/guard"}]}],
                    "Stop": [{"hooks": [{"type": "command", "command": "./guard", "timeout": 5}]}],
                    "Notification": [{"hooks": [{"type": "command", "command": "./guard"}]}],
                }
            }
        ),
        "guard": GUARD,
    }
    if manifest:
        files[manifest] = json.dumps({"name": "Desk Tools", "version": "1.1.0", "description": "d", **declared})
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "guard").chmod(0o755)
    return folder


def open_home(tmp_path: Path, **config: Any) -> Home:
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "retinue.json").write_text(json.dumps(config))
    return load_home(HomePaths(tmp_path / "home"), environment={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})


@pytest.mark.parametrize(
    "manifest",
    [
        ".claude-plugin/plugin.json",
        ".codex-plugin/plugin.json",
        ".cursor-plugin/plugin.json",
        ".plugin/plugin.json",
        "plugin.json",
        "",
    ],
)
def test_every_layout_gives_skills_commands_and_servers(tmp_path: Path, manifest: str) -> None:
    bundle = write_bundle(tmp_path / "home" / "plugins" / "desk-tools", manifest)
    opened = open_home(tmp_path)
    (known,) = opened.registry.plugins
    assert (known.name, known.state) == ("desk-tools", PluginState.ON), known.because
    assert {"mcp server files", "mcp server web", "hook program PreToolUse"} <= set(known.brings)
    files = opened.config.mcp.servers["files"]
    assert (files.command, files.args) == (f"{bundle}/server", ["--data", f"{bundle}/x"])
    assert opened.config.mcp.servers["web"].url == "http://127.0.0.1:1/mcp"
    assert known.manifest is not None
    assert known.manifest.bundle.notes == ("the hook event Notification does not exist here",)
    assert [*check_targets(opened.registry, known)] == []


def test_the_configuration_comes_before_a_bundle_and_a_disabled_bundle_brings_nothing(tmp_path: Path) -> None:
    write_bundle(tmp_path / "home" / "plugins" / "desk-tools")
    own = {"servers": {"files": {"command": "mine"}}}
    assert open_home(tmp_path, mcp=own).config.mcp.servers["files"].command == "mine"
    opened = open_home(tmp_path, plugins={"deny": ["desk-tools"]})
    assert not opened.config.mcp.servers
    assert not opened.registry.programs


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({".claude-plugin/plugin.json": "{"}, "cannot be read"),
        ({".mcp.json": "[]"}, "names no MCP servers"),
        ({"hooks/hooks.json": '{"hooks": []}'}, "not an object of events"),
        ({"hooks/hooks.json": '{"hooks": {"Stop": [{"matcher": "(", "hooks": []}]}}'}, "is not a pattern"),
        ({".claude-plugin/plugin.json": '{"name": "x", "skills": "../../etc"}'}, "outside its folder"),
        ({".claude-plugin/plugin.json": '{"name": "x", "mcpServers": "/etc/passwd"}'}, "outside its folder"),
    ],
)
def test_a_broken_bundle_is_off_with_its_reason(tmp_path: Path, broken: dict[str, str], reason: str) -> None:
    bundle = write_bundle(tmp_path / "home" / "plugins" / "desk-tools")
    for name, text in broken.items():
        (bundle / name).write_text(text)
    (known,) = open_home(tmp_path).registry.plugins
    assert known.state is PluginState.FAILED
    assert reason in known.because


@pytest.mark.slow
async def test_hook_programs_run_only_with_permission_and_can_stop_calls(stage: Stage) -> None:
    bundle = write_bundle(stage.home.path / "plugins" / "desk-tools")
    log = bundle / "log.jsonl"
    stage.server.push(calls("write", path="a.txt", content="forbidden"), says("Done."))
    await stage.ask("write it")
    assert not log.exists()
    assert (stage.workspace / "a.txt").exists()
    stage.config = {"plugins": {"entries": {"desk-tools": {"hooks": {"allowPrograms": True}}}}}
    stage.server.push(
        calls("write", path="b.txt", content="forbidden"),
        calls("write", path="c.txt", content="denied"),
        calls("write", path="d.txt", content="fine"),
        says("Done."),
    )
    await stage.ask("write them")
    request = stage.server.requests[-1].body.decode()
    assert "not in this house" in request
    assert "The bundle 'desk-tools' refused the call: policy" in request
    assert [(stage.workspace / name).exists() for name in ("b.txt", "c.txt", "d.txt")] == [False, False, True]
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["hook_event_name"] for event in events] == [
        *["PreToolUse"] * 2,
        "PreToolUse",
        "PostToolUse",
        "Stop",
    ]
    assert events[0]["tool_name"] == "Write"
    assert events[3]["tool_response"]["is_error"] is False


async def test_skills_and_commands_of_a_bundle_are_slash_commands(stage: Stage) -> None:
    write_bundle(stage.home.path / "plugins" / "desk-tools")
    stage.server.push(says("Deployed."))
    (listed, answer) = await stage.ask("/help", "/deploy now")
    assert "/deploy" in listed.text
    assert "/tidy" in listed.text
    assert answer.text == "Deployed."
    assert "deploy.md" in stage.server.requests[-1].body.decode()


def test_a_bundle_is_installed_after_its_servers_and_programs_were_shown(
    tmp_path: Path, retinue: RunCommand, home: Path
) -> None:
    bundle = write_bundle(tmp_path / "desk")
    asked = retinue("plugins", "install", str(bundle))
    assert "mcp server files: ${CLAUDE_PLUGIN_ROOT}/server" in asked.err or f"mcp server files: {bundle}" in asked.err
    assert "hook program PreToolUse: ./guard" in asked.err
    assert "hooks.allowPrograms" in asked.err
    installed = retinue("plugins", "install", str(bundle), "--yes", "--json")
    assert installed.data["state"] == "on", installed.err
    servers = retinue("mcp", "list", "--json").data
    assert {"files", "web"} <= {row["name"] for row in servers}
    assert str(home) in str(load_home(HomePaths(home)).config.mcp.servers["files"].command)
