"""Reading, writing and editing files of the workspace."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.messages import Image
from retinue.storage.files import Root
from retinue.toolkit import files
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Tool, ToolContext
from retinue.tools.toolset import Toolset
from tests.toolkit.conftest import call, failure, text_of

pytestmark = pytest.mark.anyio

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def tools(parts: ToolParts) -> Toolset:
    return Toolset(files.make_tools(parts))


@pytest.fixture
def read(tools: Toolset) -> Tool[Any]:
    return tools["read"]


@pytest.fixture
def write(tools: Toolset) -> Tool[Any]:
    return tools["write"]


@pytest.fixture
def edit(tools: Toolset) -> Tool[Any]:
    return tools["edit"]


async def test_a_file_comes_as_it_is(read: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a.txt").write_bytes("\ufeffone\ntwo ü\n".encode())
    assert text_of(await call(read, context, path="a.txt")) == "one\ntwo ü\n"
    assert text_of(await call(read, context, path=str(workspace / "a.txt"))) == "one\ntwo ü\n"


async def test_an_empty_file_says_so(read: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a.txt").touch()
    assert text_of(await call(read, context, path="a.txt")) == "(the file is empty)"


async def test_part_of_a_file(read: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 11)))
    got = text_of(await call(read, context, path="a.txt", offset=4, limit=2))
    assert got == "4\n5\n\n(lines 4-5 of 10; go on with offset=6)"
    assert text_of(await call(read, context, path="a.txt", offset=9)) == "9\n10\n"
    assert "only 10 lines" in await failure(read, context, path="a.txt", offset=11)


async def test_a_huge_file_comes_in_pages_that_join_up(read: Tool[Any], context: ToolContext, workspace: Path) -> None:
    whole = "".join(f"line {n}\n" for n in range(9_000))
    (workspace / "big.txt").write_text(whole)
    joined, offset = "", 1
    for _ in range(10):
        page = text_of(await call(read, context, path="big.txt", offset=offset))
        body, note, rest = page.partition("\n(lines ")
        joined += body
        if not note:
            break
        offset = int(rest.rpartition("offset=")[2].rstrip(")"))
    assert joined == whole


async def test_a_long_line_is_cut(read: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "long.txt").write_text("x" * 100_000)
    got = text_of(await call(read, context, path="long.txt"))
    assert got.endswith("cut at 48,000 of 100,000 characters)")
    assert len(got) < 49_000


async def test_a_file_beyond_all_bounds_is_refused(read: Tool[Any], context: ToolContext, workspace: Path) -> None:
    with (workspace / "sparse").open("wb") as stream:
        stream.truncate(files.MAX_READ_BYTES + 1)
    assert "Use grep" in await failure(read, context, path="sparse")


async def test_a_missing_file_names_its_neighbours(read: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "notes").mkdir()
    (workspace / "notes/Readme.md").touch()
    message = await failure(read, context, path="notes/readme.txt")
    assert message == "'notes/readme.txt' does not exist. Did you mean notes/Readme.md?"
    assert "Nor does its folder 'nowhere'" in await failure(read, context, path="nowhere/x")


async def test_a_folder_a_binary_and_a_fifo_are_refused_with_a_hint(
    read: Tool[Any], context: ToolContext, workspace: Path
) -> None:
    (workspace / "dir").mkdir()
    (workspace / "data.bin").write_bytes(bytes(range(256)))
    os.mkfifo(workspace / "fifo")
    assert "Use ls" in await failure(read, context, path="dir")
    assert "Use ls" in await failure(read, context, path=".")
    assert "binary file of 256 bytes" in await failure(read, context, path="data.bin")
    assert "fifo" in await failure(read, context, path="fifo")


async def test_a_picture_comes_as_a_picture(read: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "dot.png").write_bytes(PNG)
    [_, image] = (await call(read, context, path="dot.png")).content
    assert isinstance(image, Image)
    assert (image.media_type, base64.b64decode(image.data)) == ("image/png", PNG)


async def test_reading_stays_inside(read: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "link").symlink_to("/etc/passwd")
    (workspace / "folder").symlink_to("/etc")
    for path in ("/etc/passwd", "../x", "link", "folder/passwd"):
        assert "workspace" in await failure(read, context, path=path)


async def test_further_folders_can_be_read_but_not_written(
    read: Tool[Any], write: Tool[Any], context: ToolContext, tmp_path: Path
) -> None:
    skill = tmp_path / "skills"
    skill.mkdir()
    (skill / "SKILL.md").write_text("how to")
    with Root.open(skill) as readable:
        wider = replace(context, readable=(readable,))
        assert text_of(await call(read, wider, path=str(skill / "SKILL.md"))) == "how to"
        assert "outside the workspace" in await failure(write, wider, path=str(skill / "SKILL.md"), content="x")


async def test_writing_makes_folders_and_replaces(write: Tool[Any], context: ToolContext, workspace: Path) -> None:
    assert text_of(await call(write, context, path="a/b/c.txt", content="ü\r\n")) == "Wrote 4 bytes to a/b/c.txt."
    await call(write, context, path="a/b/c.txt", content="two")
    assert (workspace / "a/b/c.txt").read_bytes() == b"two"


@pytest.mark.parametrize(
    "path", [".git/config", ".git/hooks/pre-commit", "x/.GIT/config", ".retinue/x", "skills.lock", "."]
)
async def test_control_files_cannot_be_written(
    write: Tool[Any], edit: Tool[Any], context: ToolContext, workspace: Path, path: str
) -> None:
    await failure(write, context, path=path, content="x")
    await failure(edit, context, path=path, oldText="a", newText="b")
    assert list(workspace.iterdir()) == []


async def test_writing_stays_inside(write: Tool[Any], context: ToolContext, workspace: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("safe")
    (workspace / "link").symlink_to(victim)
    (workspace / "hard").hardlink_to(victim)
    (workspace / "SOUL.md").touch()
    for path in ("link", "hard", "../victim", str(victim), "soul.MD"):
        await failure(write, context, path=path, content="x")
    assert "surrogate" in await failure(write, context, path="x", content="\ud800")
    assert victim.read_text() == "safe"


async def test_an_edit_replaces_the_one_place(edit: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    output = await call(edit, context, path="a.py", oldText="two = 2", newText="two = 22")
    assert text_of(output) == "Edited a.py: 1 place, first at line 2."
    assert (workspace / "a.py").read_text() == "one = 1\ntwo = 22\nthree = 3\n"


async def test_several_edits_are_all_or_none(edit: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a.py").write_text("a b c")
    await call(edit, context, path="a.py", edits=[{"oldText": "c", "newText": "a"}, {"oldText": "a", "newText": "x"}])
    assert (workspace / "a.py").read_text() == "x b a"
    await failure(
        edit, context, path="a.py", edits=[{"oldText": "b", "newText": "y"}, {"oldText": "nope", "newText": ""}]
    )
    assert (workspace / "a.py").read_text() == "x b a"
    overlapping = [{"oldText": "x b", "newText": "1"}, {"oldText": "b a", "newText": "2"}]
    assert "overlap" in await failure(edit, context, path="a.py", edits=overlapping)


async def test_an_ambiguous_edit_says_where(edit: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a.py").write_text("x\ny\nx\n")
    assert "(lines 1 and 3)" in await failure(edit, context, path="a.py", oldText="x", newText="z")


async def test_a_failing_edit_shows_the_nearest_text(edit: Tool[Any], context: ToolContext, workspace: Path) -> None:
    (workspace / "a.py").write_text("def greet(name):\n    return f'hello {name}'\n\ndef leave():\n    pass\n")
    message = await failure(edit, context, path="a.py", oldText="def greet(nam):\n    return name", newText="x")
    assert message == (
        "The text to replace is not in 'a.py'. The nearest text starts at line 1:\n"
        "def greet(name):\n    return f'hello {name}'"
    )
    assert "comes near" in await failure(edit, context, path="a.py", oldText="%%%%%%", newText="x")


async def test_an_edit_keeps_line_ends_and_byte_order_mark(
    edit: Tool[Any], context: ToolContext, workspace: Path
) -> None:
    (workspace / "win.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    await call(edit, context, path="win.txt", oldText="one\ntwo", newText="1\n2\n2b")
    assert (workspace / "win.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2b\r\nthree\r\n"
    (workspace / "mixed.txt").write_bytes(b"one\r\ntwo\nthree\r\n")
    await call(edit, context, path="mixed.txt", oldText="two\n", newText="2\n")
    assert (workspace / "mixed.txt").read_bytes() == b"one\r\n2\nthree\r\n"


@pytest.mark.parametrize("content", [b"\0\1\2", b"caf\xe9 au lait, et beaucoup de texte"])
async def test_what_is_no_text_is_not_edited(
    edit: Tool[Any], context: ToolContext, workspace: Path, content: bytes
) -> None:
    (workspace / "x").write_bytes(content)
    assert "cannot be edited as text" in await failure(edit, context, path="x", oldText="a", newText="b")
    assert (workspace / "x").read_bytes() == content


async def test_edits_that_change_nothing_are_refused(edit: Tool[Any], context: ToolContext) -> None:
    assert "are the same" in await failure(edit, context, path="x", oldText="a", newText="a")
    assert "oldText" in await failure(edit, context, path="x", oldText="", newText="a")
