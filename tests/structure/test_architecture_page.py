"""The tables of `docs/architecture.md` name what exists, and a traced message takes the path of the first table."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

from retinue.testing.message_path import MessagePath, trace_message

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "retinue"
PAGE = ROOT / "docs" / "architecture.md"

MAX_FRAMES = 18
MAX_FILES = 10
PATHS = ("A message", "A configuration key", "A plugin", "A memory search", "An approval")
IN_CODE = re.compile(r"`([^`]+)`")


class PathRow(NamedTuple):
    """A row of a table with the columns step, file and function."""

    section: str
    table: int
    file: str
    names: tuple[str, ...]


def read_rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("|")]


@cache
def read_path_tables() -> tuple[PathRow, ...]:
    found, table = [], 0
    for section in PAGE.read_text().split("\n## ")[1:]:
        title = section.partition("\n")[0]
        for columns in read_rows(section):
            if columns == ["step", "file", "function"]:
                table += 1
            elif table and len(columns) == 3 and columns[1].endswith(".py`"):
                found.append(PathRow(title, table, columns[1].strip("`"), tuple(IN_CODE.findall(columns[2]))))
    return tuple(found)


@cache
def defined_names(file: str) -> frozenset[str]:
    """The functions, classes and methods of a module, as in `open_runtime` and `Dispatcher.say`."""
    found = set()
    pending = [("", node) for node in ast.parse((SOURCE / file).read_text()).body]
    while pending:
        prefix, node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            pending += [(f"{prefix}{node.name}.", inner) for inner in node.body]
    return frozenset(found)


@pytest.mark.parametrize("section", PATHS)
def test_a_path_names_files_and_functions_that_exist(section: str) -> None:
    rows = [row for row in read_path_tables() if row.section == section]
    assert len(rows) >= 8
    assert [row for row in rows if not row.names] == []
    assert [row.file for row in rows if not (SOURCE / row.file).is_file()] == []
    assert [(row.file, name) for row in rows for name in row.names if name not in defined_names(row.file)] == []


def test_the_layers_list_every_package() -> None:
    section = PAGE.read_text().partition("## Layers")[2].partition("\n## ")[0]
    listed = [name for columns in read_rows(section) if len(columns) == 3 for name in IN_CODE.findall(columns[1])]
    present = {path.parent.name for path in SOURCE.glob("*/__init__.py")} | {"hooks", "settings"}
    assert sorted(listed) == sorted(present)


@pytest.mark.parametrize("page", [PAGE, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_the_text_names_paths_that_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    paths = sorted({name for name in IN_CODE.findall(text) if re.fullmatch(r"[\w-]+/[\w./-]*", name)})
    assert len(paths) >= 10
    assert [path for path in paths if not any((folder / path).exists() for folder in (SOURCE, ROOT, page.parent))] == []


def expected_stack() -> list[PathRow]:
    message = [row for row in read_path_tables() if row.section == PATHS[0]]
    return [row for row in message if row.table == message[0].table]


def check_stack(path: MessagePath, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert 0 < path.frames <= MAX_FRAMES
    assert len(path.files) <= MAX_FILES
    stack = [(file, tuple(step.function for step in steps)) for file, steps in groupby(path.steps, lambda s: s.file)]
    assert stack == expected


@pytest.mark.slow
def test_a_message_from_the_terminal_takes_the_documented_path(tmp_path: Path) -> None:
    check_stack(trace_message(tmp_path), [(row.file, row.names) for row in expected_stack()])


@pytest.mark.slow
def test_a_message_through_the_gateway_takes_the_same_path(tmp_path: Path) -> None:
    command = {"cli/agent.py": ("cli/gateway.py", ("run",))}
    expected = [command.get(row.file, (row.file, row.names)) for row in expected_stack()]
    check_stack(trace_message(tmp_path, "gateway"), expected)
