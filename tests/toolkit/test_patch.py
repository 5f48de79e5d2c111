"""Patches: read whole, checked whole, applied whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.toolkit.files import patch
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Tool, ToolContext
from tests.toolkit.conftest import call, failure, text_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def apply(parts: ToolParts) -> Tool[Any]:
    [tool] = patch.make_tools(parts)
    return tool


def patch_of(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def snapshot(workspace: Path) -> dict[str, bytes]:
    return {str(p.relative_to(workspace)): p.read_bytes() for p in workspace.rglob("*") if p.is_file()}


APP = "import os\n\ndef one():\n    return 1\n\ndef two():\n    return 1\n"


async def test_files_are_added_changed_moved_and_deleted(
    apply: Tool[Any], context: ToolContext, workspace: Path
) -> None:
    (workspace / "app.py").write_text(APP)
    (workspace / "old.txt").write_text("old\n")
    (workspace / "name.sh").write_text("echo\n")
    (workspace / "name.sh").chmod(0o755)
    output = await call(
        apply,
        context,
        input=patch_of(
            "*** Add File: new/a.txt",
            "+first",
            "+",
            "+third",
            "",
            "*** Update File: app.py",
            "@@ def two():",
            "-    return 1",
            "+    return 2",
            "*** Delete File: old.txt",
            "*** Update File: name.sh",
            "*** Move to: bin/run.sh",
            "@@",
            "-echo",
            "+echo hi",
        ),
    )
    assert text_of(output).splitlines() == ["A new/a.txt", "M app.py", "D old.txt", "R name.sh -> bin/run.sh"]
    assert snapshot(workspace) == {
        "new/a.txt": b"first\n\nthird\n",
        "app.py": APP.replace("def two():\n    return 1", "def two():\n    return 2").encode(),
        "bin/run.sh": b"echo hi\n",
    }
    assert (workspace / "bin/run.sh").stat().st_mode & 0o777 == 0o755


async def test_several_hunks_and_the_end_of_the_file(apply: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a").write_text("a\nb\nc\nd\nc\n")
    await call(
        apply,
        context,
        input=patch_of("*** Update File: a", " a", "-b", "+B", "@@", " d", "-c", "+C", "+E", "*** End of File"),
    )
    assert (workspace / "a").read_text() == "a\nB\nc\nd\nC\nE\n"


async def test_insertions(apply: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a").write_text("one\ntwo")
    await call(apply, context, input=patch_of("*** Update File: a", "@@ one", "+between", "@@", "+last"))
    assert (workspace / "a").read_text() == "one\nbetween\ntwo\nlast"
    (workspace / "empty").touch()
    await call(apply, context, input=patch_of("*** Update File: empty", "@@", "+x"))
    assert (workspace / "empty").read_text() == "x\n"


async def test_only_trailing_white_space_is_forgiven(apply: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a").write_text("keep  \nold\t\n")
    await call(apply, context, input=patch_of("*** Update File: a", "@@", " keep", "-old", "+new"))
    assert (workspace / "a").read_text() == "keep  \nnew\n"
    await failure(apply, context, input=patch_of("*** Update File: a", "@@", "-  new", "+x"))


async def test_line_ends_and_byte_order_mark_are_kept(apply: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    await call(apply, context, input=patch_of("*** Update File: a", " one", "-two", "+2", "+3").replace("\n", "\r\n"))
    assert (workspace / "a").read_bytes() == b"\xef\xbb\xbfone\r\n2\r\n3\r\n"


async def test_a_failing_hunk_is_named_and_nothing_is_changed(
    apply: Tool[Any], context: ToolContext, workspace: Path
) -> None:
    (workspace / "app.py").write_text(APP)
    before = snapshot(workspace)
    message = await failure(
        apply,
        context,
        input=patch_of(
            "*** Add File: new.txt",
            "+x",
            "*** Update File: app.py",
            "@@",
            "-import os",
            "+import re",
            "@@",
            "-def twoo():",
            "+x",
        ),
    )
    assert message == "Hunk 2 of 'app.py' does not match. The nearest text starts at line 6:\ndef two():"
    assert snapshot(workspace) == before


async def test_an_ambiguous_hunk_is_refused(apply: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "app.py").write_text(APP)
    hunk = ("@@", "-    return 1", "+    return 3")
    assert "several places (lines 4, 7)" in await failure(
        apply, context, input=patch_of("*** Update File: app.py", *hunk)
    )
    missing = patch_of("*** Update File: app.py", "@@ def three():", "-    return 1", "+x")
    assert "no line `def three():` after this point" in await failure(apply, context, input=missing)


async def test_a_failure_while_writing_takes_everything_back(
    apply: Tool[Any], context: ToolContext, workspace: Path
) -> None:
    (workspace / "a").write_text("a\n")
    (workspace / "b").write_text("b\n")
    (workspace / "gone").write_text("gone\n")
    (workspace / "SOUL.md").write_text("soul\n")
    before = snapshot(workspace)
    message = await failure(
        apply,
        context,
        input=patch_of(
            *("*** Update File: a", "@@", "-a", "+A"),
            *("*** Update File: b", "*** Move to: c", "@@", "-b", "+B"),
            "*** Delete File: gone",
            *("*** Add File: new", "+x"),
            *("*** Add File: soul.md", "+shadow"),
        ),
    )
    assert message.endswith("Nothing was changed.")
    assert snapshot(workspace) == before


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "changes nothing"),
        (("garbage",), "Line 2 of the patch is `garbage`"),
        (("*** Add File: a", "x"), "Line 3 of the patch: every line of a new file"),
        (("*** Update File: a",), "changes nothing in 'a'"),
        (("*** Update File: a", "@@"), "is empty"),
        (("*** Update File: a", "@@", "x"), "Line 4 of the patch, `x`"),
        (("*** Delete File: a", "+x"), "nothing may follow"),
        (("*** Delete File: missing",), "'missing' does not exist"),
        (("*** Update File: missing", "@@", "-x", "+y"), "'missing' does not exist"),
        (("*** Add File: a", "+x"), "already exists"),
        (("*** Update File: a", "*** Move to: b"), "already exists"),
        (("*** Delete File: a", "*** Update File: a", "@@", "-a", "+b"), "contains 'a' more than once"),
        (("*** Add File: ../x", "+x"), "outside the workspace"),
        (("*** Add File: /etc/x", "+x"), "outside the workspace"),
        (("*** Add File: .git/hooks/post-commit", "+x"), "control file"),
        (("*** Update File: a", "*** Move to: .git/config"), "control file"),
        (("*** Delete File: link",), "link"),
        (("*** Update File: bin", "@@", "-a", "+b"), "not UTF-8"),
    ],
)
async def test_what_a_patch_may_not_do(
    apply: Tool[Any], context: ToolContext, workspace: Path, lines: tuple[str, ...], said: str
) -> None:
    (workspace / "a").write_text("a\n")
    (workspace / "b").write_text("b\n")
    (workspace / "bin").write_bytes(b"\xff\xfe\xfa")
    (workspace / "link").symlink_to("/etc/passwd")
    before = snapshot(workspace)
    assert said in await failure(apply, context, input=patch_of(*lines))
    assert snapshot(workspace) == before


@pytest.mark.parametrize("text", ["", "*** Begin Patch", "*** Add File: a\n+x", "*** Begin Patch\n*** Add File: a\n+x"])
async def test_a_patch_has_a_beginning_and_an_end(apply: Tool[Any], context: ToolContext, text: str) -> None:
    assert "*** End Patch" in await failure(apply, context, input=text)
