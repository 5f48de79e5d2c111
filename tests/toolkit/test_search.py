"""Looking for files and in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.core.errors import ToolFailed
from retinue.core.globs import Glob
from retinue.toolkit.files import search
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Tool, ToolContext
from retinue.tools.toolset import Toolset
from tests.toolkit.conftest import call, failure, text_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def tools(parts: ToolParts) -> Toolset:
    return Toolset(search.make_tools(parts))


@pytest.fixture
def grep(tools: Toolset) -> Tool[Any]:
    return tools["grep"]


@pytest.fixture
def tree(workspace: Path) -> Path:
    """A small project with the folders that searching skips."""
    for path, text in {
        "README.md": "# Title\nhello world\n",
        "src/app.py": "import os\n\n\ndef hello():\n    return 'HELLO'\n",
        "src/deep/util.py": "x = 1\n",
        "src/deep/util.txt": "hello\n",
        ".git/config": "hello\n",
        "node_modules/x.js": "hello\n",
    }.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(text)
    (workspace / "bin.dat").write_bytes(b"hello\0\1")
    (workspace / "link").symlink_to("/etc")
    return workspace


async def test_grep_gives_path_line_and_text(grep: Tool[Any], context: ToolContext, tree: Path) -> None:
    found = text_of(await call(grep, context, pattern=r"\bhello\b"))
    assert found.splitlines() == ["README.md:2:hello world", "src/app.py:4:def hello():", "src/deep/util.txt:1:hello"]


@pytest.mark.slow
async def test_grep_narrows_by_path_glob_and_case(grep: Tool[Any], context: ToolContext, tree: Path) -> None:
    assert text_of(await call(grep, context, pattern="hello", path="src/deep")) == "src/deep/util.txt:1:hello"
    assert text_of(await call(grep, context, pattern="hello", path="README.md")) == "README.md:2:hello world"
    found = text_of(await call(grep, context, pattern="hello", glob="*.py", ignoreCase=True))
    assert found.splitlines() == ["src/app.py:4:def hello():", "src/app.py:5:    return 'HELLO'"]
    assert text_of(await call(grep, context, pattern="absent")) == "No matches."


async def test_grep_shows_context(grep: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a").write_text("1\nx\n3\n4\n5\nx\nx\n8\n")
    found = text_of(await call(grep, context, pattern="x", context=1))
    assert found.splitlines() == ["a-1-1", "a:2:x", "a-3-3", "--", "a-5-5", "a:6:x", "a:7:x", "a-8-8"]


async def test_grep_stops_at_its_limit(grep: Tool[Any], context: ToolContext, workspace: Path) -> None:
    for name in "abc":
        (workspace / name).write_text("x\n" * 200_000)
    found = text_of(await call(grep, context, pattern="x", limit=5)).splitlines()
    assert found[:5] == [f"a:{n}:x" for n in range(1, 6)]
    assert "stopped after 5 matches" in found[5]
    assert len(found) == 6


async def test_grep_shortens_long_lines_and_skips_large_files(
    grep: Tool[Any], context: ToolContext, workspace: Path
) -> None:
    (workspace / "long").write_text("x" * 10_000)
    (workspace / "large").write_text("x" * (search.MAX_FILE_BYTES + 1))
    assert text_of(await call(grep, context, pattern="x")) == f"long:1:{'x' * 400}…"


@pytest.mark.parametrize("pattern", ["(", "[", "*x", "(?P<n>a)(?P<n>b)"])
async def test_a_bad_pattern_is_explained(grep: Tool[Any], context: ToolContext, tree: Path, pattern: str) -> None:
    assert "not a valid regular expression" in await failure(grep, context, pattern=pattern)


@pytest.mark.slow
async def test_a_catastrophic_pattern_is_stopped(context: ToolContext, workspace: Path) -> None:
    (workspace / "a").write_text("a" * 60 + "b\n")
    impatient = search.grep_tool(0.5)
    assert "was stopped" in await failure(impatient, context, pattern="(a+)+$")
    assert text_of(await call(search.grep_tool(30), context, pattern="a+b")) == f"a:1:{'a' * 60}b"


async def test_searching_stays_inside(tools: Toolset, context: ToolContext, tree: Path) -> None:
    assert "outside the workspace" in await failure(tools["grep"], context, pattern="root", path="/etc")
    assert "workspace" in await failure(tools["grep"], context, pattern="root", path="link")
    assert "outside the workspace" in await failure(tools["find"], context, pattern="*", path="..")
    assert "workspace" in await failure(tools["ls"], context, path="link")
    assert "does not exist. Did you mean src/?" in await failure(tools["ls"], context, path="scr")
    assert "does not exist" in await failure(tools["grep"], context, pattern="x", path="nothing")


async def test_find_by_name_and_by_path(tools: Toolset, context: ToolContext, tree: Path) -> None:
    find = tools["find"]
    assert text_of(await call(find, context, pattern="*.py")).splitlines() == ["src/app.py", "src/deep/util.py"]
    assert text_of(await call(find, context, pattern="src/*.py")) == "src/app.py"
    assert text_of(await call(find, context, pattern="**/util.*", path="src")).splitlines() == [
        "src/deep/util.py",
        "src/deep/util.txt",
    ]
    assert text_of(await call(find, context, pattern="deep")) == "src/deep/"
    assert text_of(await call(find, context, pattern="link")) == "link@"
    assert text_of(await call(find, context, pattern="*.rs")) == "No matches."
    few = text_of(await call(find, context, pattern="*", limit=2)).splitlines()
    assert few == ["README.md", "bin.dat", "(more than 2; narrow the search or raise limit)"]


async def test_ls_marks_folders_and_links(tools: Toolset, context: ToolContext, tree: Path) -> None:
    listed = text_of(await call(tools["ls"], context))
    assert listed.splitlines() == [".git/", "README.md", "bin.dat", "link@", "node_modules/", "src/"]
    (tree / "empty").mkdir()
    assert text_of(await call(tools["ls"], context, path="empty")) == "(the folder is empty)"


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a/b.py", True),
        ("*.py", "b.pyc", False),
        ("a/*.py", "a/b/c.py", False),
        ("a/**/*.py", "a/c.py", True),
        ("a/**/*.py", "a/b/c/d.py", True),
        ("**/x", "x", True),
        ("**", "a/b", True),
        ("a/**", "a", True),
        ("*.{ts,tsx}", "a/b.tsx", True),
        ("{a,b}/{c,d}", "b/c", True),
        ("*.{ts}", "a.{ts}", True),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("./a.txt", "a.txt", True),
        ("a?c", "abc", True),
    ],
)
async def test_globs(pattern: str, path: str, matches: bool) -> None:
    assert Glob(pattern).matches(path) is matches


@pytest.mark.parametrize("pattern", ["", "x" * 501, "{a,b}" * 8])
async def test_unreasonable_globs_are_refused(pattern: str) -> None:
    with pytest.raises(ToolFailed):
        Glob(pattern)


async def test_a_glob_of_many_stars_ends() -> None:
    assert not Glob("*a*a*a*a*a*a*a*a*a*b").matches("a" * 250)
    assert not Glob("**/" * 50 + "x").matches("/".join(["a"] * 100))
