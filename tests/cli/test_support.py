"""`retinue why`, `report`, `completion` and `demo`: help for people."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pexpect
import pytest

from retinue.cli.main import COMMANDS
from retinue.testing.modelserver import running_server
from tests.cli.conftest import RunCommand

KEY = "sk-ant-abcdefghijklmnop0123"


def configure(home: Path, port: int) -> None:
    home.mkdir(parents=True)
    provider = {
        "baseUrl": f"http://127.0.0.1:{port}/v1",
        "api": "openai-completions",
        "apiKey": KEY,
        "models": [{"id": "test-model"}],
    }
    config = {"models": {"providers": {"test": provider}}, "agents": {"defaults": {"model": "test/test-model"}}}
    (home / "retinue.json").write_text(json.dumps(config))


@pytest.mark.slow
def test_why_explains_the_last_turn(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    script = ["Hello.", {"call": {"name": "read", "arguments": {"path": "USER.md"}}}, "You are my user."]
    with running_server(tmp_path, script) as port:
        configure(home, port)
        assert retinue("init").code == 0
        assert retinue("agent", "-m", "hi").code == 0
        assert retinue("agent", "-m", "Who am I?").code == 0
    found = retinue("why", "--json").data
    assert (found["message"], found["answer"]) == ("Who am I?", "You are my user.")
    assert "AGENTS.md" in found["files"]
    assert [(use["tool"], use["outcome"]) for use in found["tools"]] == [("read", "ok")]
    assert [call["model"] for call in found["modelCalls"]] == ["test/test-model"] * 2
    assert found["total"]["output"] == 40
    assert found["promptTokens"] > 500
    shown = retinue("why").out
    assert "spent     200 tokens read, 40 written" in shown
    assert "nothing: the cached prompt stayed the same" in shown
    first = found["session"]
    assert first == "agent:main:main"


@pytest.mark.slow
def test_why_finds_a_run_by_its_beginning_and_says_what_moved_the_cache(
    retinue: RunCommand, home: Path, tmp_path: Path
) -> None:
    with running_server(tmp_path, ["One.", "Two."]) as port:
        configure(home, port)
        assert retinue("init").code == 0
        assert retinue("agent", "-m", "first").code == 0
        run = retinue("why", "--json").data["run"]
        soul = home / "workspace" / "SOUL.md"
        soul.write_text(soul.read_text() + "\nAlways rhyme.\n")
        assert retinue("agent", "-m", "second").code == 0
    assert retinue("why", run[:12], "--json").data["message"] == "first"
    assert "SOUL.md" in retinue("why", "--json").data["cache"]["moved"]
    missing = retinue("why", "no-such-run")
    assert missing.code == 2
    assert "no-such-run" in missing.err


def test_why_without_a_turn_says_what_to_do(retinue: RunCommand) -> None:
    ran = retinue("why", "--json")
    assert ran.code == 2
    assert "retinue chat" in ran.data["error"]["message"]


@pytest.mark.slow
def test_a_report_holds_no_secret_and_no_message(
    retinue: RunCommand, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running_server(tmp_path, ["A private answer."]) as port:
        configure(home, port)
        assert retinue("init").code == 0
        assert retinue("agent", "-m", "a private question").code == 0
    ran = retinue("report", "--json", "-o", "bundle.zip")
    assert ran.code == 0, ran.err
    with zipfile.ZipFile("bundle.zip") as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(texts) == {"versions.json", "status.json", "doctor.json", "config.json", "log.txt"}
    whole = "".join(texts.values())
    assert KEY not in whole
    assert "private" not in whole
    assert json.loads(texts["versions.json"])["retinue"]
    assert json.loads(texts["config.json"])["agents"]["defaults"]["model"] == "test/test-model"
    assert Path("bundle.zip").stat().st_mode & 0o077 == 0
    again = retinue("report", "-o", "bundle.zip")
    assert again.code == 2
    assert "--output" in again.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_names_the_command(retinue: RunCommand, shell: str) -> None:
    ran = retinue("completion", shell)
    assert ran.code == 0
    assert "_RETINUE_COMPLETE" in ran.out
    assert ran.out.startswith("# ")


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash --norc --noprofile -i", "zsh -f -i", "fish -N -i"])
def test_a_shell_loads_the_script_and_completes(tmp_path: Path, shell: str) -> None:
    name, *options = shell.split()
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    script = tmp_path / "script"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path, "TERM": "xterm"}
    script.write_text(subprocess.check_output(["retinue", "completion", name], text=True, env=environment))
    child = pexpect.spawn(name, options, env=environment, encoding="utf-8", timeout=60, dimensions=(30, 100))
    try:
        child.sendline(f"source {script}; echo loa''ded")
        child.expect_exact("loaded\r")
        child.send("retinue sess\t")
        child.expect_exact("sessions")
    finally:
        child.close(force=True)


def test_commands_complete_without_importing_them() -> None:
    program = (
        "import sys; from retinue.cli.main import cli\n"
        "try: cli.main([], prog_name='retinue', standalone_mode=False)\n"
        "finally: print('IMPORTED', 'retinue.cli.models' in sys.modules)"
    )
    environment = {**os.environ, "_RETINUE_COMPLETE": "bash_complete", "COMP_WORDS": "retinue mo", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["plain,models", "IMPORTED False"]


def test_an_unknown_shell_is_refused(retinue: RunCommand) -> None:
    ran = retinue("completion", "tcsh")
    assert ran.code == 2
    assert "bash" in ran.err


def test_the_demo_is_marked_as_a_recording_and_touches_nothing(retinue: RunCommand, home: Path) -> None:
    ran = retinue("demo")
    assert ran.code == 0
    lines = ran.out.strip().splitlines()
    assert lines[0].startswith("RECORDING")
    assert "retinue setup" in lines[-1]
    assert all(line.startswith("▌ ") for line in lines[1:-1])
    for part in ("tool", "recall", "approval", "sub-agent", "memory"):
        assert part in ran.out
    played = retinue("demo", "--json").data
    assert played["recording"] is True
    assert 45 <= sum(moment["seconds"] for moment in played["moments"]) <= 75
    assert not home.exists()


def test_new_commands_are_listed() -> None:
    assert {"setup", "demo", "why", "report", "completion"} <= COMMANDS.keys()
