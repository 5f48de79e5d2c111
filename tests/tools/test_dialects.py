"""The reading of commands against real bash and dash: nothing starts that was not reported."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from retinue.tools.shell.analysis import AnalysedCommand, CommandLocation, Joiner, PipelineStep, analyse
from tests.tools.dialects import HOME, available, compare
from tests.tools.everyday import read_everyday, share_analysable
from tests.tools.generator import generate

needs_shells = pytest.mark.skipif(available() is not None, reason=f"{available()} is not installed")
COMMANDS = 5_000


@pytest.mark.slow
@needs_shells
def test_shells_start_exactly_what_was_reported(tmp_path: Path) -> None:
    found = compare(generate(COMMANDS, "tests"), tmp_path)
    assert found.generated == COMMANDS
    assert found.allowed > COMMANDS / 5
    assert found.differences == ()


@pytest.mark.slow
@needs_shells
def test_everyday_commands_are_read_as_shells_read_them(tmp_path: Path) -> None:
    found = compare(read_everyday(), tmp_path)
    assert found.allowed > 100
    assert found.differences == ()


@pytest.mark.slow
@needs_shells
@pytest.mark.parametrize(
    ("text", "started"),
    [
        ("ls $(id)", ("id",)),
        ("ls & id", ("id",)),
        ("ls\nid", ("id",)),
        ("ls `id`", ("id",)),
        ("eval id", ("id",)),
        ("ls || /bin/id; ls x", ("ls", "x")),
    ],
)
def test_the_comparison_sees_what_a_careless_reading_misses(
    tmp_path: Path, text: str, started: tuple[str, ...]
) -> None:
    def careless(line: str) -> AnalysedCommand:
        return AnalysedCommand((PipelineStep(Joiner.ALWAYS, (tuple(shlex.split(line)),)),))

    found = compare([text], tmp_path, read=careless)
    assert {difference.shell for difference in found.differences} == {"bash", "dash"}
    assert all(started in difference.unreported for difference in found.differences)


def test_most_everyday_commands_need_no_shell(tmp_path: Path) -> None:
    commands = read_everyday()
    assert len(set(commands)) >= 300
    assert share_analysable(commands, tmp_path) > 0.7


def test_the_generator_is_repeatable() -> None:
    assert list(generate(50, "x")) == list(generate(50, "x"))
    assert any(isinstance(analyse(text, CommandLocation(HOME)), AnalysedCommand) for text in generate(50, "x"))
