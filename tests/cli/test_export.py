"""`retinue export`: everything is found again in open formats, and no secret."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import RunCommand
from tests.cli.test_backup import make_agent


def test_everything_is_exported_without_secrets(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    make_agent(retinue, home)
    key = "sk-ant-0123456789abcdefghij"
    retinue("config", "set", "models.providers.test", json.dumps({"baseUrl": "http://127.0.0.1:1/v1", "apiKey": key}))
    (home / "workspace" / "link").symlink_to("/etc/passwd")
    done = retinue("export", "-o", str(tmp_path / "out"), "--json").data
    assert (done["agents"], done["sessions"], done["jobs"]) == (2, 1, 1)
    out = tmp_path / "out"
    assert (out / "agents/work/workspace/notes.md").read_text() == "Work notes.\n"
    assert not (out / "agents/main/workspace/link").exists()
    lines = [json.loads(line) for line in (out / "agents/work/sessions/abc.jsonl").read_text().splitlines()]
    assert lines[0]["sessionKey"] == "agent:work:main"
    assert lines[1]["message"]["content"][0]["text"] == "Hello"
    assert "Hello" in (out / "agents/work/sessions/abc.md").read_text()
    (session,) = json.loads((out / "agents/work/sessions.json").read_text())
    assert (session["key"], session["messages"]) == ("agent:work:main", 1)
    (job,) = json.loads((out / "jobs.json").read_text())
    assert job["message"] == "Report"
    labels = [json.loads(line) for line in (out / "file-labels.jsonl").read_text().splitlines()]
    assert [(row["path"], row["origin"]) for row in labels] == [("notes.md", "untrusted")]
    assert json.loads((out / "config.json").read_text())["models"]["providers"]["test"]["baseUrl"]
    assert not any(key in path.read_text(errors="replace") for path in out.rglob("*") if path.is_file())


def test_one_agent_is_exported_alone(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    make_agent(retinue, home)
    retinue("cron", "add", "--name", "other", "--every", "2h", "--message", "Other")
    retinue("export", "-o", str(tmp_path / "out"), "--agent", "work")
    assert [path.name for path in (tmp_path / "out/agents").iterdir()] == ["work"]
    assert [job["name"] for job in json.loads((tmp_path / "out/jobs.json").read_text())] == ["report"]
    assert not (tmp_path / "out/config.json").exists()


def test_wrong_use_is_explained(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    assert "no home" in retinue("export", "--json").data["error"]["message"]
    retinue("init", "--yes")
    assert "exists already" in retinue("export", "-o", str(tmp_path), "--json").data["error"]["message"]
    assert retinue("export", "--agent", "nobody").code == 2
    assert not (home / "exports").exists()
