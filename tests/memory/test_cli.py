"""`retinue memory` on a real home."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from retinue.cli.memory import memory
from retinue.cli.workspace import init
from retinue.core.clock import SystemClock
from retinue.core.errors import OutsideRoot, UsageError
from retinue.core.keys import DEFAULT_AGENT
from retinue.memory.embed_texts import MIN_BATCH_TEXTS
from retinue.storage.database import SqliteDatabase
from retinue.storage.provenance import AgentWrites
from tests.memory.batchserver import BatchServer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    assert CliRunner().invoke(init, []).exit_code == 0
    return tmp_path / "home"


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(memory, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def data(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json", "--quiet").stdout)


def note(home: Path, path: str, text: str) -> None:
    file = home / "workspace" / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


def test_a_search_brings_the_index_up_to_date_and_gives_the_known_shape(home: Path) -> None:
    note(home, "memory/2023-04-01.md", "# Log\n\nThe wifi code is XK-4471-QQ.\n")
    (hit,) = data("search", "XK-4471-QQ")
    assert set(hit) == {"path", "startLine", "endLine", "score", "snippet", "source"}
    assert (hit["path"], hit["source"]) == ("memory/2023-04-01.md", "memory")
    assert "XK-4471-QQ" in hit["snippet"]


@pytest.mark.slow
def test_explain_shows_the_parts_of_the_score(home: Path) -> None:
    note(home, "memory/a.md", "The wifi code is XK-4471-QQ.")
    (hit,) = data("explain", "XK-4471-QQ")
    assert hit["explanation"]["exact"] == 1.0
    assert set(hit["explanation"]) == {"vector", "text", "exact", "decay", "matched", "origin"}
    assert data("search", "wifi", "--explain")[0]["explanation"]["text"] == 1.0
    assert "exact 1.00" in run("explain", "XK-4471-QQ").stdout


@pytest.mark.slow
def test_standing_instructions_and_preferences_are_listed_with_their_lines(home: Path) -> None:
    assert data("standing", "list") == []
    note(
        home,
        "memory/chat.md",
        "# Chat\n\nUser: Always answer in metric units.\nAssistant: Always say please.\nUser: I prefer trains.\n",
    )
    assert data("standing", "list") == [
        {"kind": "instruction", "text": "Always answer in metric units.", "path": "memory/chat.md", "line": 3},
        {"kind": "preference", "text": "I prefer trains.", "path": "memory/chat.md", "line": 5},
    ]
    note(home, "memory/chat.md", "# Chat\n\nUser: Always answer in metric units.\n")
    assert "memory/chat.md#L3" in run("standing", "list").stdout
    assert len(data("standing", "list")) == 1


@pytest.mark.slow
def test_standing_facts_are_added_and_removed(home: Path) -> None:
    assert data("standing", "add", "Answer in  German.") == {"added": True}
    assert data("standing", "add", "answer in german.") == {"added": False}
    (fact,) = data("standing", "list")
    assert (fact["text"], fact["path"]) == ("Answer in German.", "memory/standing.md")
    with pytest.raises(UsageError, match="no item on line 1"):
        run("standing", "remove", "1")
    with pytest.raises(UsageError, match="empty"):
        run("standing", "add", " ")
    assert data("standing", "remove", str(fact["line"]))["removed"] == fact["line"]
    assert data("standing", "list") == []


def test_status_and_index_tell_what_there_is(home: Path) -> None:
    note(home, "memory/a.md", "The harbour is closed.")
    before = data("status")
    assert (before["files"], before["dirty"], before["lastSync"]) == (0, True, None)
    assert data("index")["changed"] == 1
    after = data("status")
    assert (after["files"], after["chunks"], after["embedded"], after["backend"]) == (1, 1, 1, "builtin")
    assert after["lastSync"]
    assert data("index", "--force")["files"] == 1
    assert Path(after["path"]) == home / "memory" / "main.sqlite"


@pytest.mark.slow
def test_limits_of_a_search(home: Path) -> None:
    for n in range(9):
        note(home, f"memory/{n}.md", f"harbour number {n}")
    assert len(data("search", "harbour", "--max", "2")) == 2
    assert "No results." in run("search", "zzzz", "--min-score", "0.9").stdout


def test_get_prints_lines(home: Path) -> None:
    note(home, "memory/a.md", "one\ntwo\nthree\n")
    assert run("get", "memory/a.md", "--from", "2", "--lines", "1").stdout == "two\n"
    with pytest.raises(OutsideRoot):
        run("get", "../retinue.json")


def test_problems_are_named(home: Path) -> None:
    (home / "workspace" / "memory").mkdir(exist_ok=True)
    (home / "workspace" / "memory" / "b.md").write_bytes(b"\0")
    assert "memory/b.md" in run("index").stderr


@pytest.mark.slow
def test_every_agent_has_its_own_memory(home: Path) -> None:
    (home / "retinue.json").write_text('{agents: {list: [{id: "main", default: true}, {id: "ana"}]}}')
    other = home / "workspace-ana" / "memory"
    other.mkdir(parents=True)
    (other / "secret.md").write_text("The harbour code of Ana.")
    note(home, "memory/a.md", "The harbour is closed.")
    assert [hit["path"] for hit in data("search", "harbour")] == ["memory/a.md"]
    assert [hit["path"] for hit in data("search", "harbour", "--agent", "ana")] == ["memory/secret.md"]
    with pytest.raises(OutsideRoot):
        run("get", "memory/../../workspace-ana/memory/secret.md")


def test_other_folders_are_searched_where_they_are_named(home: Path, tmp_path: Path) -> None:
    (tmp_path / "vault" / "deep").mkdir(parents=True)
    (tmp_path / "vault" / "deep" / "x.md").write_text("The lighthouse keeper.")
    (tmp_path / "one.md").write_text("A single lighthouse.")
    note(home, "docs/y.md", "The lighthouse stairs.")
    extra = json.dumps([str(tmp_path / "vault"), str(tmp_path / "one.md"), "docs", str(tmp_path / "gone")])
    (home / "retinue.json").write_text(f"{{agents: {{defaults: {{memorySearch: {{extraPaths: {extra}}}}}}}}}")
    found = {hit["path"] for hit in data("search", "lighthouse")}
    assert found == {"extra/vault/deep/x.md", f"extra/{tmp_path.name}/one.md", "docs/y.md"}
    assert run("get", "extra/vault/deep/x.md").stdout.strip() == "The lighthouse keeper."
    assert any("gone" in problem["path"] for problem in data("index")["problems"])


def configure(home: Path, **search: Any) -> None:
    (home / "retinue.json").write_text(json.dumps({"agents": {"defaults": {"memorySearch": search}}}))


def count_vectors(home: Path) -> int:
    with closing(sqlite3.connect(home / "memory" / "main.sqlite")) as base:
        return int(base.execute("SELECT count(*) FROM embedding_cache").fetchone()[0])


@pytest.mark.slow
@pytest.mark.parametrize(("enabled", "kept"), [(True, 2), (False, 1)])
def test_vectors_of_texts_that_are_gone_are_kept_unless_that_is_switched_off(
    home: Path, enabled: bool, kept: int
) -> None:
    configure(home, cache={"enabled": enabled})
    for text in ("The harbour is closed.", "The harbour is open."):
        note(home, "memory/a.md", text)
        run("index")
    assert count_vectors(home) == kept


def test_the_command_embeds_in_a_batch_and_says_what_went_wrong(home: Path) -> None:
    server = BatchServer(broken=("note 5.",))
    for n in range(MIN_BATCH_TEXTS):
        note(home, f"memory/{n}.md", f"This is note {n}.")
    with server.running() as url:
        batch = {"enabled": True, "pollIntervalMs": 1}
        configure(home, provider="openai-compatible", model="m", remote={"baseUrl": url, "batch": batch})
        told = data("index")
    assert (told["embedded"], told["waiting"], told["reason"]) == (MIN_BATCH_TEXTS, 0, None)
    assert told["notes"] == ["1 of 100 texts of a batch failed and are embedded directly: this text cannot be embedded"]
    assert len(server.embedded_directly) == 1


def test_a_model_file_that_is_missing_leaves_words_and_says_so(home: Path) -> None:
    configure(home, local={"modelPath": "none.gguf"})
    note(home, "memory/a.md", "The harbour is closed.")
    result = run("search", "harbour")
    assert "memory/a.md" in result.stdout
    assert f"Words only: There is no model at {home / 'models' / 'none.gguf'}" in result.stderr


@pytest.mark.parametrize("place", ["workspace", "elsewhere"])
def test_the_command_knows_what_came_from_outside(home: Path, tmp_path: Path, place: str) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    configure(home, extraPaths=[str(vault)])
    (vault / "page.md").write_text("The harbour is closed, says a page.\n")
    note(home, "memory/page.md", "The harbour is closed, says a page.\n")
    path = "memory/page.md" if place == "workspace" else str(vault / "page.md")
    with closing(SqliteDatabase(home / "state.sqlite")) as database:
        writes = AgentWrites(database, SystemClock(), DEFAULT_AGENT, home / "workspace")
        writes.record(path, ["The harbour is closed, says a page."])
    origins = {hit["path"]: hit["explanation"]["origin"] for hit in data("search", "harbour", "--explain")}
    foreign, own = ("memory/page.md", "extra/vault/page.md")[:: 1 if place == "workspace" else -1]
    assert origins == {foreign: "untrusted", own: "owner"}


def test_status_says_why_a_key_for_chat_models_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "GEMINI_API_KEY", "VOYAGE_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    note(home, "memory/a.md", "The harbour is closed.")
    status = data("status")
    assert (status["provider"], status["fallback"]) == ("local", None)
    assert "no key for embedding" in status["chosen"]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdefghij")
    assert "OPENAI_API_KEY is used for chat models only" in data("status")["chosen"]
    monkeypatch.delenv("OPENAI_API_KEY")
    config = {"models": {"providers": {"gemini": {"apiKey": "AIza0123456789abcdefghij"}}}}
    (home / "retinue.json").write_text(json.dumps(config))
    assert "models.providers.gemini.apiKey is used for chat" in data("status")["chosen"]
    assert "provider to 'gemini'" in data("status")["chosen"]


def test_status_reports_a_fallback_in_every_process(home: Path) -> None:
    search = {"provider": "openai-compatible", "remote": {"baseUrl": "http://127.0.0.1:9/v1"}, "fallback": "local"}
    (home / "retinue.json").write_text(json.dumps({"agents": {"defaults": {"memorySearch": search}}}))
    note(home, "memory/a.md", "The harbour is closed.")
    assert data("index")["embedded"] == 1
    status = data("status")
    assert status["provider"] == "local"
    assert status["fallback"].startswith("openai-compatible/")
