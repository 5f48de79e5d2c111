"""Wrong command lines: no traceback, an exit code, and a message that says what to do, as text and as JSON."""

from __future__ import annotations

import io
import shlex

import pytest

from tests.cli.conftest import RunCommand

HELP = "--help"
"""The hint of the parser, which also names the command."""
WRONG = {
    "nosuch": "`retinue --help` lists the commands",
    "chatt": "Did you mean 'chat'?",
    "--nosuch": HELP,
    "agent": "Use -m TEXT, or pipe the text in",
    "agent -m": "`retinue agent --help`",
    "agent -m hi --agent nobody": "Known: main",
    "agent -m hi --session agent:nobody:main": "Known: main",
    "agent -m hi --session :::": "Use a name such as 'ideas'",
    "agent -m hi --model nosuch": "Write provider/model",
    "agent -m hi --model nosuch/model": "Known: anthropic",
    "agent -m hi --approvals maybe": "is not one of 'wait', 'deny'",
    "agent -m hi --skill /nonexistent": HELP,
    "agent -m hi --url ftp://x": "such as https://home.example:18790",
    "agent -m hi --url http://example.com": "Use https, or a tunnel",
    "agent -m hi --url http://127.0.0.1:1 --token x": "Check the address, and whether it is running",
    "chat": "use `retinue agent -m TEXT`",
    "gateway nosuch": HELP,
    "gateway strat": "Did you mean",
    "gateway run --port 99999": "is not in the range 0<=x<=65535",
    "gateway run --port abc": HELP,
    "gateway token revoke nosuch": "`retinue gateway token list` shows their ids",
    "gateway token create": "Missing option '--name'",
    "gateway token create --name x --scope nosuch": "is not one of 'read'",
    "gateway devices approve nosuch": "`retinue gateway devices list`",
    "gateway devices revoke nosuch": "`retinue gateway devices list`",
    "status --agent nobody": HELP,
    "doctor --nosuch": HELP,
    "logs --level nosuch": "is not one of 'debug'",
    "logs --lines -5": "is not in the range",
    "agents route": "Missing option '--channel'",
    "prompt --nosuch": HELP,
    "config get nosuch": "`retinue config schema` lists the keys",
    "config get nosuch.key": "`retinue config schema` lists the keys",
    "config set": "Missing argument 'KEY'. `retinue config set --help` shows the usage",
    "config set nosuch 1": "`retinue config schema` lists the keys",
    "config set gateway.port abc": "expected a whole number, at least 1 and at most 65535",
    "config set gateway.port 99999999": "expected a whole number, at least 1 and at most 65535",
    "config set agents.defaults.model 5": "expected text or an object",
    "config explain nosuch": "`retinue config schema` lists the keys",
    "workspace seed --agent nobody": "Known: main",
    "workspace trust nobody": HELP,
    "skills nosuch": HELP,
    "memory search": "Missing argument 'QUERY'",
    "memory search x --agent nobody": "Known: main",
    "memory get nosuch.md": "Run `retinue init`",
    "memory index --agent nobody": "Known: main",
    "sessions show nosuch": "has no sessions yet",
    "sessions show :::": "Use a name such as 'ideas'",
    "sessions export nosuch": "has no sessions yet",
    "sessions reset nosuch": "has no sessions yet",
    "sessions list --limit -1": "is not in the range x>=1",
    "sessions list --limit abc": HELP,
    "subagents show nosuch": "`retinue subagents list` shows them",
    "subagents cancel nosuch": "`retinue subagents list` shows them",
    "heartbeat run --agent nobody": "Known: main",
    "cron add": "`--message TEXT`",
    "cron add --name x --every nosuch --message hi": "Use 30m, 2h or 1d",
    "cron add --name x --cron nosuch --message hi": "It has five fields",
    "cron add x --every 5m": HELP,
    "cron remove nosuch": "`retinue cron list` shows them",
    "cron run nosuch": "`retinue cron list` shows them",
    "hooks enable nosuch": "Hooks: boot-md",
    "plugins enable nosuch": "Plugins: retinue",
    "models set nosuch": "Write provider/model",
    "models set nosuch/x": "Others can be added under `models.providers`",
    "models test nosuch": "Write provider/model",
    "models pull nosuch": "These can be pulled: smollm2-135m",
    "models auth add nosuch": "Others can be added under `models.providers`",
    "models auth add anthropic": "Pipe it in with --key-stdin",
    "models auth remove nosuch": "`retinue models auth add` stores one",
    "tools list --agent nobody": "Known: main",
    "tools explain nosuch": "`retinue tools list` shows them",
    "tools explain": "Missing argument 'TOOL'",
    "sandbox explain --agent nobody": "Known: main",
    "approvals deny nosuch": "No approvals are pending",
    "setup --yes --provider anthropic --key-env NOSUCH": "pipe the key in with --key-stdin",
    "completion nosuch": "is not one of 'bash', 'zsh', 'fish'",
    "why nosuch": "Talk to the agent first: retinue chat",
    "usage --days abc": HELP,
    "--home /etc/passwd status": "Name another with --home",
    "--profile ../x status": "Use letters, digits, '-' and '_'",
}


@pytest.fixture(autouse=True)
def piped(home: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on standard input, and no keys of this machine."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "NOSUCH"):
        monkeypatch.delenv(name, raising=False)


def test_there_are_enough_of_them() -> None:
    assert len(WRONG) > 60


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_is_answered_with_what_to_do(retinue: RunCommand, line: str) -> None:
    text = retinue(*shlex.split(line))
    assert text.code in (1, 2)
    assert WRONG[line] in text.err
    assert "Traceback" not in text.err
    assert "Error:" not in text.err
    data = retinue("--json", *shlex.split(line))
    assert data.code == text.code
    assert data.data["error"].keys() == {"kind", "message"}
    assert WRONG[line] in data.data["error"]["message"]


@pytest.mark.parametrize(
    "line",
    [
        "status",
        "doctor",
        "agents list",
        "config validate",
        "memory status",
        "models list",
        "sessions list",
        "cron list",
        "hooks list",
        "plugins list",
        "skills list",
        "tools list",
        "approvals list",
        "gateway status",
        "gateway stop",
        "init",
    ],
)
def test_quiet_prints_only_the_result(retinue: RunCommand, line: str) -> None:
    retinue("init")
    ran, again = retinue("-q", *line.split()), retinue(*line.split(), "--quiet")
    assert ran.err == again.err == ""


def test_an_interrupt_is_reported_once_and_not_at_all_if_quiet(
    retinue: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("retinue.cli.common.Invocation.show", interrupt)
    ran = retinue("agents", "list")
    assert (ran.code, ran.err.strip()) == (130, "Interrupted.")
    assert retinue("-q", "agents", "list").err.strip() == ""
    assert retinue("--json", "agents", "list").data["error"]["kind"] == "Interrupted"
