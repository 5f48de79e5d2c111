"""What is stored about MCP servers, and what is read from the files of other programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from retinue.core.errors import UsageError
from retinue.structs.schema_validator import make_validator
from retinue.toolkit.mcp.catalog import (
    MAX_NAME,
    CatalogStore,
    OfferedTool,
    ServerCatalog,
    digest_settings,
    find_fault,
    is_selected,
    name_tool,
)
from retinue.toolkit.mcp.import_servers import locate_source, read_servers
from retinue.toolkit.mcp.settings import McpServerSettings, McpToolFilter

DEEP: dict[str, Any] = reduce(lambda inner, _: {"not": inner}, range(1_500), {})
OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("tool", "name"),
    [("add", "mcp__s__add"), ("list-files", "mcp__s__list-files")],
)
def test_a_short_name_is_kept(tool: str, name: str) -> None:
    assert name_tool("s", tool) == name


def test_other_names_are_valid_and_differ() -> None:
    names = ["files/read", "files.read", "files read", "x" * 200, "x" * 201, "ñandú"]
    made = [name_tool("server", name) for name in names]
    assert len(set(made)) == len(names)
    assert all(len(name) <= MAX_NAME and name.isascii() and name.replace("-", "_").isidentifier() for name in made)


@pytest.mark.parametrize(
    ("include", "exclude", "selected"),
    [
        ([], [], True),
        (["read_*"], [], True),
        (["write_*"], [], False),
        ([], ["*_file"], False),
        (["*"], ["read*"], False),
    ],
)
def test_a_filter_selects_tools(include: list[str], exclude: list[str], selected: bool) -> None:
    settings = McpServerSettings(command="x", tool_filter=McpToolFilter(include=include, exclude=exclude))
    assert is_selected("read_file", settings) is selected


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("", OBJECT),
        ("a\nb", OBJECT),
        ("x" * 300, OBJECT),
        ("a", {"type": "string"}),
        ("a", ["object"]),
        ("a", {"type": "object", "properties": {"a": {"type": "nonsense"}}}),
        ("a", {"type": "object", "description": "x" * 20_000}),
        ("a", {"type": "object", "properties": {"a": {"$ref": "http://169.254.169.254/latest"}}}),
        ("a", {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}),
        ("a", {"type": "object", "properties": {"a": DEEP}}),
    ],
)
def test_a_tool_that_cannot_be_used_has_a_reason(name: str, schema: object) -> None:
    assert find_fault(name, schema)
    assert find_fault("a", OBJECT) is None


def test_a_catalog_is_for_the_settings_that_it_was_made_with(tmp_path: Path) -> None:
    store, settings = CatalogStore(tmp_path), McpServerSettings(command="x", args=["1"])
    listed = ServerCatalog(
        digest_settings(settings), datetime(2026, 1, 2, tzinfo=UTC), tools=(OfferedTool("a", "A.", OBJECT),)
    )
    store.save("s", listed)
    assert store.load("s", settings) == listed
    assert store.load("s", McpServerSettings(command="x", args=["2"])).tools == ()
    store.save_problem("s", settings, "gone", datetime(2026, 1, 3, tzinfo=UTC))
    assert store.load("s", settings).problem == "gone"
    assert store.load("s", settings).tools == listed.tools
    (store.folder / "s.json").write_bytes(b"{torn")
    assert store.load("s", settings).listed_at is None
    store.remove("s")
    store.remove("s")


def test_servers_of_other_programs_are_read(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(
        json.dumps(
            {
                "mcpServers": {
                    "files": {"type": "stdio", "command": "npx", "args": ["-y", "server"], "env": {"A": "b"}},
                    "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"X": "y"}},
                    "vars": {"command": "${TOOL_NOT_SET:-tool}", "env": {"A": "${PATH:-x}"}},
                    "old": {"url": "https://example.com/sse", "transport": "sse", "disabled": True},
                    "two__parts": {"command": "x"},
                    "loads": {"command": "x", "env": {"LD_PRELOAD": "/tmp/x.so"}},
                    "far": {"url": "${FAR}/mcp"},
                    "odd": {"url": "ftp://example.com"},
                    "empty": {},
                }
            }
        )
    )
    found = read_servers(locate_source(str(tmp_path), tmp_path))
    assert found.servers == {
        "files": {"command": "npx", "args": ["-y", "server"], "env": {"A": "b"}},
        "web": {"url": "https://example.com/mcp", "headers": {"X": "y"}, "transport": "streamable-http"},
        "vars": {"command": "tool", "env": {"A": "${PATH}"}},
        "old": {"url": "https://example.com/sse", "transport": "sse", "enabled": False},
        "far": {"url": "${FAR}/mcp"},
    }
    assert found.refused.keys() == {"two__parts", "loads", "odd", "empty"}
    assert "LD_PRELOAD" in found.refused["loads"]


def test_servers_of_codex_are_read(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(
        'model = "x"\n[mcp_servers.docs]\ncommand = "docs"\nstartup_timeout_sec = 20\n'
        '[mcp_servers.web]\nurl = "https://example.com/mcp"\nhttp_headers = { Region = "eu" }\n'
        'bearer_token_env_var = "TOKEN"\nenv_http_headers = { Team = "TEAM" }\nenabled_tools = ["read"]\n'
    )
    found = read_servers(locate_source("codex", tmp_path))
    assert found.servers == {
        "docs": {"command": "docs", "connectionTimeoutMs": 20_000},
        "web": {
            "url": "https://example.com/mcp",
            "headers": {"Region": "eu", "Team": "${TEAM}", "Authorization": "Bearer ${TOKEN}"},
            "toolFilter": {"include": ["read"]},
        },
    }


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mcpServers": {}}', "{torn"])
def test_a_file_without_servers_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "servers.json").write_text(text)
    with pytest.raises(UsageError, match=r"servers\.json"):
        read_servers(locate_source(str(tmp_path / "servers.json"), tmp_path))


@pytest.mark.parametrize("source", ["nowhere.json", "codex"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, source: str) -> None:
    with pytest.raises(UsageError, match=source):
        locate_source(source, tmp_path)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|aa)+(?=$)x", "^(([a-z])+.)+[A-Z]([a-z])+(?!x)$"])
def test_a_pattern_of_a_server_ends_soon(pattern: str) -> None:
    validator = make_validator({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}})
    assert not validator.is_valid({"a": "a" * 60 + "!"})
    zod = "^(?!\\.)(?!.*\\.\\.)[a-z.]+@[a-z.]+$"
    assert make_validator({"properties": {"a": {"pattern": zod}}}).is_valid({"a": "ada@example.org"})
