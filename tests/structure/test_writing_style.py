"""Help, messages, docstrings and documentation use plain technical English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from retinue.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "retinue"
BANNED = re.compile(
    r"\b(whoever|whomever|somebody|(?:is|are|was|were) told"
    r"|(?<!there )(?:is|are) no (?!longer|more\b)[a-z]\w*"
    r"|of one's own|lest|let in|lets in|sent away|vouch(?:ed|es)? for|hearts? beats?|wakes? up by)\b",
    re.IGNORECASE,
)
"""Idioms that a reader cannot search for; use "if", the name of the actor, and "is not a valid …" instead."""


def walk_commands(command: click.Command, path: str = "retinue") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from walk_commands(found, f"{path} {name}")


COMMANDS = dict(walk_commands(cli))


@pytest.mark.parametrize("path", COMMANDS)
def test_help_uses_plain_terms(path: str) -> None:
    command = COMMANDS[path]
    texts = [command.help or "", *(getattr(parameter, "help", None) or "" for parameter in command.params)]
    assert [text for text in texts if BANNED.search(text)] == []
    assert command.help, f"`{path}` has no help"


def messages(tree: ast.Module) -> Iterator[ast.expr]:
    """The texts that people read: docstrings, and the arguments of errors, log calls and notices."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value
        elif isinstance(node, ast.Call):
            yield from node.args
            yield from (keyword.value for keyword in node.keywords)


def text_of(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(
                part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )
    return ""


_JOINT = re.compile(r"""["']\s*\n\s*[bfru]*["']""")
"""Where one line of a text that is written over several lines ends and the next begins."""


def read_suspected(path: Path) -> str:
    """Return the source of a module if it has an idiom anywhere; parsing all of them costs seconds."""
    text = path.read_text("utf-8")
    return text if BANNED.search(_JOINT.sub("", text)) else ""


SOURCES = sorted(path for path in SOURCE.rglob("*.py") if not {"bundled", "templates"} & set(path.parts))


@pytest.mark.slow
def test_messages_and_docstrings_use_plain_terms() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {' '.join(match.group().split())!r}"
        for path in SOURCES
        for node in messages(ast.parse(read_suspected(path)))
        if (match := BANNED.search(text_of(node))) is not None
    ]
    assert found == []


def test_documentation_uses_plain_terms() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [
        f"{page.relative_to(ROOT)}:{number}: {match.group()!r}"
        for page in pages
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1)
        if (match := BANNED.search(line)) is not None
    ]
    assert found == []
