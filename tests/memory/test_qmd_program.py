"""Running the program: what it gets, what becomes of it when it misbehaves, and what its answers must look like."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from retinue.memory.qmd.program import QmdFailed, QmdProgram
from retinue.memory.qmd.results import QmdMatch, UpdateCounts, parse_counts, parse_matches
from tests.memory.stand_in import HANG, StandIn, make_folders

pytestmark = pytest.mark.anyio

PATIENCE = 20.0


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn.make(tmp_path / "program")


def program(stand_in: StandIn, *, uses_models: bool = False, **environment: str) -> QmdProgram:
    variables = {"PATH": "/usr/bin:/bin", **environment}
    return QmdProgram(str(stand_in.program), make_folders(stand_in.folder.parent), variables, uses_models=uses_models)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def members(group: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == group and is_alive(int(entry.name)):
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


async def all_gone(group: int) -> None:
    with anyio.fail_after(PATIENCE):
        while members(group):
            await anyio.sleep(0.01)


async def test_a_command_runs_with_few_variables_in_the_agents_own_folders(stand_in: StandIn, tmp_path: Path) -> None:
    runner = program(stand_in, OPENAI_API_KEY="sk-secret", LANG="C.UTF-8", HTTPS_PROXY="http://proxy")
    assert (await runner.run("--version", seconds=PATIENCE)).startswith("qmd 2.8.3")
    (call,) = stand_in.calls()
    assert call["argv"] == ["--index", "index", "--version"]
    assert call["cwd"] == str(tmp_path / "qmd")
    assert call["env"] == {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "XDG_CONFIG_HOME": str(tmp_path / "qmd" / "xdg-config"),
        "XDG_CACHE_HOME": str(tmp_path / "qmd" / "xdg-cache"),
        "NO_COLOR": "1",
        "CI": "1",
    } | {key: value for key, value in call["env"].items() if key == "LC_CTYPE"}
    assert (tmp_path / "qmd").stat().st_mode & 0o777 == 0o700


async def test_with_models_they_are_shared_and_may_be_downloaded(stand_in: StandIn, tmp_path: Path) -> None:
    await program(stand_in, uses_models=True, HTTPS_PROXY="http://proxy").run("--version", seconds=PATIENCE)
    (call,) = stand_in.calls()
    assert call["env"]["HTTPS_PROXY"] == "http://proxy"
    assert "CI" not in call["env"]
    assert (tmp_path / "qmd" / "xdg-cache" / "qmd" / "models").resolve() == tmp_path / "models"


@pytest.mark.slow
async def test_a_program_that_hangs_is_killed_with_all_it_started(stand_in: StandIn) -> None:
    stand_in.tell("search", HANG)
    with pytest.raises(QmdFailed, match=r"`qmd search` did not end within 2 s and was stopped"):
        await program(stand_in).run("search", seconds=2)
    await all_gone(int((stand_in.folder / "child").read_text()))


@pytest.mark.slow
async def test_a_child_that_keeps_the_output_open_is_killed_too(stand_in: StandIn) -> None:
    stand_in.tell(
        "search", "print('[]'); subprocess.Popen(['sleep', '600']); (here / 'child').write_text(str(os.getpid()))"
    )
    with pytest.raises(QmdFailed, match="did not end"):
        await program(stand_in).run("search", seconds=2)
    await all_gone(int((stand_in.folder / "child").read_text()))


async def test_a_caller_that_goes_away_takes_the_program_along(stand_in: StandIn) -> None:
    stand_in.tell("search", HANG)
    started = stand_in.folder / "child"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: program(stand_in).run("search", seconds=PATIENCE))
        with anyio.fail_after(PATIENCE):
            while not started.exists() or not started.read_text():
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    await all_gone(int(started.read_text()))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "sys.stderr.write('warming up\\nthe \\x1b[31mdatabase is locked\\n\\n'); sys.exit(3)",
            r"exit code 3\): the .*locked$",
        ),
        ("sys.exit(1)", r"failed \(exit code 1\)\.$"),
        ("os.kill(os.getpid(), 11)", r"killed by SIGSEGV"),
        ("[print('x' * 65536) for _ in range(100)]; time.sleep(600)", r"printed more than 400,000 bytes"),
        ("[print('x' * 65536, file=sys.stderr) for _ in range(100)]; sys.exit(1)", r"exit code 1\): x{200}$"),
    ],
)
async def test_a_failure_says_what_happened(stand_in: StandIn, script: str, message: str) -> None:
    stand_in.tell("search", script)
    with pytest.raises(QmdFailed, match=message) as failure:
        await program(stand_in).run("search", seconds=PATIENCE)
    assert "\x1b" not in str(failure.value)


@pytest.mark.parametrize("command", ["no-such-qmd", "/nowhere/qmd", "./qmd"])
async def test_a_missing_program_says_how_to_get_it(tmp_path: Path, command: str) -> None:
    runner = QmdProgram(command, make_folders(tmp_path), {"PATH": "/usr/bin:/bin"})
    with pytest.raises(QmdFailed, match=r"was not found\. Install it .*memory\.qmd\.command"):
        await runner.run("--version", seconds=PATIENCE)


async def test_a_file_that_is_no_program_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "qmd-text").write_bytes(b"\x7fELF nothing")
    (tmp_path / "qmd-text").chmod(0o700)
    with pytest.raises(QmdFailed, match="could not be started"):
        await QmdProgram(str(tmp_path / "qmd-text"), make_folders(tmp_path), {}).run("--version", seconds=PATIENCE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No results found.",
        '{"results": []}',
        '[{"file": 3, "score": 0.5}]',
        '[{"file": "qmd://c/a.md"}]',
        '[{"file": "qmd://c/a.md", "score": "0.5"}]',
        '[{"file": "qmd://c/a.md", "score": NaN}]',
        '[{"file": "qmd://c/a.md", "score": -1}]',
        '[{"file": "qmd://c/a.md", "score": 0.5, "line": 0}]',
        '[{"file": "/etc/passwd", "score": 0.5}]',
        '[{"file": "qmd://c/a.md", "score": 0.5}',
    ],
)
def test_an_answer_that_is_none_is_a_failure(text: str) -> None:
    with pytest.raises(QmdFailed, match=r"The output of the search"):
        parse_matches(text)


def test_an_answer_is_read_with_the_line_of_its_snippet() -> None:
    text = """[
      {"docid": "#a", "file": "qmd://c/sub/a b?.md", "score": 7, "line": 4, "title": "A", "new": {"field": 1}},
      {"file": "qmd://c/b.md", "score": 0, "snippet": "@@ -12,4 @@ (11 before, 2 after)\\ntext"},
      {"file": "qmd://c/c.md", "score": 0.25},
      {"file": "qmd://c", "score": 0.2}
    ]"""
    assert parse_matches(text) == (
        QmdMatch("c", "sub/a b?.md", 4, 1.0),
        QmdMatch("c", "b.md", 12, 0.0),
        QmdMatch("c", "c.md", 1, 0.25),
    )


def test_the_counts_of_an_update_are_added_up() -> None:
    text = "Indexed: 1 new, 2 updated, 3 unchanged, 4 removed\nIndexed: 10 new, 0 updated, 0 unchanged, 0 removed\n"
    assert parse_counts(text) == UpdateCounts(files=16, changed=13, removed=4)
    assert parse_counts("All done.") == UpdateCounts(0, 0, 0)


def test_the_text_of_a_program_does_not_show_its_environment(tmp_path: Path) -> None:
    assert "sk-secret" not in repr(QmdProgram("qmd", make_folders(tmp_path), {"OPENAI_API_KEY": "sk-secret"}))
