"""Programs of bundles in real turns: a hook program that refuses messages, and an MCP server in the sandbox."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.core.envelope import Inbound
from retinue.runtime.home import load_home
from retinue.storage.home_paths import HomePaths
from retinue.testing.replies import calls, says
from tests.channels.services import STRANGER, open_world
from tests.channels.test_services import configuration
from tests.cli.conftest import RunCommand
from tests.cli.conftest import home as home
from tests.cli.conftest import retinue as retinue
from tests.gateway.conftest import open_hall, raw_socket
from tests.gateway.test_mcp_servers import tell
from tests.runtime.conftest import Stage
from tests.runtime.conftest import stage as stage
from tests.runtime.test_outcomes import KEY, say_during_a_turn

pytestmark = pytest.mark.anyio

ALLOWED = {"entries": {"guard": {"hooks": {"allowPrograms": True}}}}
REFUSAL = "The bundle 'guard' refused the message: no passwords here"
EXIT_2 = f"""#!{sys.executable}
import json, sys
if "password" in json.load(sys.stdin)["prompt"]:
    print("no passwords here", file=sys.stderr)
    sys.exit(2)
"""
DECISION = f"""#!{sys.executable}
import json, sys
if "password" in json.load(sys.stdin)["prompt"]:
    print(json.dumps({{"decision": "block", "reason": "no passwords here"}}))
"""
SERVER = """import os
import sys
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("desk")
data = Path(sys.argv[2])
assert data.parent == Path(os.environ["PLUGIN_DATA"])

@server.tool(description="Keep a line.")
def keep(line: str) -> str:
    with data.open("a") as notes:
        notes.write(line + "\\n")
    outside = Path(os.environ["OUTSIDE"]).exists()
    try:
        Path(os.environ["CLAUDE_PLUGIN_ROOT"], "changed").write_text("x")
        changed = True
    except OSError:
        changed = False
    return f"{data.read_text().split()} outside: {outside} changed: {changed} in: {Path.cwd().name}"

server.run(transport="stdio")
"""


def write_guard(home: Path, program: str = EXIT_2) -> Path:
    bundle = home / "plugins" / "guard"
    (bundle / "hooks").mkdir(parents=True)
    hook = {"hooks": [{"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/check"}]}
    (bundle / "hooks" / "hooks.json").write_text(json.dumps({"hooks": {"UserPromptSubmit": [hook]}}))
    (bundle / "check").write_text(program)
    (bundle / "check").chmod(0o755)
    return bundle


@pytest.mark.parametrize("program", [EXIT_2, DECISION])
async def test_a_program_refuses_a_message_and_the_model_never_reads_it(stage: Stage, program: str) -> None:
    write_guard(stage.home.path, program)
    stage.config = {"plugins": ALLOWED}
    stage.server.push(says("Hello."))
    refused, answered = await stage.ask("my password is fennel", "hello")
    assert (str(refused.status), refused.error, refused.refused) == ("failed", REFUSAL, True)
    assert answered.text == "Hello."
    assert len(stage.server.requests) == 1
    assert "fennel" not in stage.server.requests[0].body.decode()


async def test_a_message_during_a_turn_is_checked_too(tmp_path: Path) -> None:
    write_guard(tmp_path / "home")
    first, later = Inbound("look at it", KEY), Inbound("my password is fennel", KEY)
    outcomes, model = await say_during_a_turn(tmp_path, "steer", first, later, plugins=ALLOWED)
    assert [outcome.error for outcome in outcomes] == [None, REFUSAL]
    assert not [text for text in model.asked if "fennel" in text]


def test_the_command_line_shows_why_a_message_was_refused(home: Path, retinue: RunCommand) -> None:
    write_guard(home)
    (home / "retinue.json").write_text(json.dumps({"plugins": ALLOWED}))
    shown = retinue("agent", "-m", "my password is fennel")
    assert shown.code != 0
    assert REFUSAL in shown.err
    printed = retinue("agent", "-m", "my password is fennel", "--json")
    assert printed.code != 0
    assert printed.data["error"] == {"kind": "MessageRefused", "message": REFUSAL}


@pytest.mark.slow
async def test_the_gateway_and_chats_show_why_a_message_was_refused(tmp_path: Path) -> None:
    async with open_world("telegram") as world, open_hall(tmp_path) as hall:
        write_guard(hall.home.path)
        channels = configuration(world, dmPolicy="open", allowFrom=["*"])
        hall.config = {**channels, "plugins": ALLOWED}
        async with hall.serving(), raw_socket(hall) as raw:
            accepted = await raw.result("agent", message="my password is fennel", idempotencyKey="1")
            outbound = (await raw.result("agent.wait", runId=accepted["runId"]))["outbound"]
            assert (outbound["status"], outbound["error"]) == ("failed", REFUSAL)
            await world.say("my password is fennel", STRANGER)
            await world.fake.until(lambda: bool(world.fake.sent))
            assert world.texts(STRANGER) == [REFUSAL]
            assert not hall.model.model_requests


def write_server(tmp_path: Path) -> None:
    bundle = tmp_path / "desk"
    (bundle / ".claude-plugin").mkdir(parents=True, exist_ok=True)
    (bundle / ".claude-plugin" / "plugin.json").write_text(json.dumps({"name": "desk", "version": "1"}))
    server = {
        "command": sys.executable,
        "args": ["${CLAUDE_PLUGIN_ROOT}/server.py", "--notes", "${CLAUDE_PLUGIN_DATA}/notes.txt"],
        "env": {"OUTSIDE": str(tmp_path / "outside")},
    }
    (bundle / ".mcp.json").write_text(json.dumps({"mcpServers": {"desk": server}}))
    (bundle / "server.py").write_text(SERVER)


@pytest.mark.slow
async def test_a_server_of_a_bundle_runs_in_the_sandbox_and_its_data_outlives_an_update(
    tmp_path: Path, home: Path, retinue: RunCommand
) -> None:
    (tmp_path / "outside").mkdir()
    async with open_hall(tmp_path) as hall:
        write_server(tmp_path)
        sandbox: dict[str, Any] = {"mode": "all", "workspaceAccess": "rw"}
        hall.config = {
            "agents": {"defaults": {"model": "test/test-model", "sandbox": sandbox}},
            "tools": {"sandbox": {"tools": {"allow": ["*"]}}},
        }
        hall.write_config()
        assert retinue("plugins", "install", str(tmp_path / "desk"), "--yes").code == 0
        for line, kept in (("one", "['one']"), ("two", "['one', 'two']")):
            async with hall.serving(), raw_socket(hall) as raw:
                hall.model.push(calls("tool_call", name="mcp__desk__keep", arguments={"line": line}), says("Kept."))
                session = f"agent:main:{line}"  # a conversation with results of a server asks before the next call
                accepted = await raw.result("agent", message="keep it", idempotencyKey=line, sessionKey=session)
                assert (await raw.result("agent.wait", runId=accepted["runId"]))["outbound"]["text"] == "Kept."
                assert f"{kept} outside: False changed: False in: lib" in tell(hall)
            (tmp_path / "desk" / "server.py").write_text(SERVER + "# version 2\n")
            updated = retinue("plugins", "update", "desk", "--yes")
            assert updated.code == 0, updated.err
    settings = load_home(HomePaths(home)).config.mcp.servers["desk"]
    assert settings.write_paths == [str(home / "plugin-data" / "desk")]
