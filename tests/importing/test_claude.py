"""Memory files, skills and MCP servers of Claude Code are imported once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand


@pytest.fixture
def claude(home: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "user" / ".claude"
    files = {
        "CLAUDE.md": "Use tabs.\n",
        "projects/-home-ada-shop/memory/MEMORY.md": "The shop sells tea.\n",
        "skills/review/SKILL.md": "---\nname: review\ndescription: Review code.\n---\nRead it.\n",
        "skills/review/list.txt": "one\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    servers = {"docs": {"command": "docs-mcp", "env": {"DOCS_KEY": "docs-secret"}}, "bad name!": {"command": "x"}}
    (tmp_path / "user" / ".claude.json").write_text(json.dumps({"mcpServers": servers, "oauthAccount": {"id": 1}}))
    return folder


def test_what_claude_knows_is_found_again(retinue: RunCommand, home: Path, claude: Path) -> None:
    plan = retinue("import", "claude", "--dry-run", "--json").data["plan"]
    assert {line["kind"]: (line["count"], line["skipped"]) for line in plan} == {
        "memory": (2, 0),
        "skills": (1, 0),
        "mcp": (1, 2),
    }
    assert not home.exists()
    done = retinue("import", "claude", "--json").data
    assert {line["kind"]: line["imported"] for line in done["done"]} == {"memory": 2, "skills": 1, "mcp": 1}
    notes = {path.name: path.read_text() for path in (home / "workspace/memory").iterdir()}
    assert notes == {
        "claude-instructions.md": "Use tabs.\n",
        "claude-home-ada-shop-memory.md": "The shop sells tea.\n",
    }
    assert (home / "skills/review/list.txt").read_text() == "one\n"
    servers = retinue("config", "get", "mcp.servers", "--json").data
    assert "docs-mcp" in json.dumps(servers)
    assert "docs-secret" not in (home / "retinue.json").read_text()
    again = retinue("import", "claude", "--json").data["done"]
    assert {line["kind"]: line["imported"] for line in again} == {"memory": 0, "skills": 0, "mcp": 0}


def test_secrets_of_servers_need_consent(retinue: RunCommand, home: Path, claude: Path) -> None:
    retinue("import", "claude", "--include", "mcp", "--with-credentials")
    assert "docs-secret" in (home / "retinue.json").read_text()
    assert not (home / "skills").exists()


def test_a_missing_folder_is_explained(retinue: RunCommand, home: Path) -> None:
    missing = retinue("import", "claude", "--json")
    assert (missing.code, missing.data["error"]["kind"]) == (2, "UsageError")
