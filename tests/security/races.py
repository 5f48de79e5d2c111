"""File operations while another process swaps a folder, or a file, for a link that leads outside.

The swap is one system call, so every operation meets it at any of its steps. What is outside must stay as it was and
must never be read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

from retinue.core.clock import SystemClock, random_id
from retinue.core.errors import StorageError, ToolFailed
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import text_of
from retinue.memory.notes import Library, NoteFolder
from retinue.storage.files import Resolver, Root
from retinue.toolkit.files import patch, read_write, search
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.tools import open_workdir
from retinue.toolkit.settings import ToolsSettings
from retinue.tools.tool import Tool, ToolContext
from tests.toolkit.conftest import Board

INSIDE, OUTSIDE = "inside words\n", "OUTSIDE words\n"
GREPPED = 200
"""How many files one search reads, each of them a race of its own."""

SWAPPER = dedent("""
    import ctypes, os, select, sys
    folder = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    pairs = [(os.fsencode(one), os.fsencode(other)) for one, other in zip(sys.argv[2::2], sys.argv[3::2])]
    print("ready", flush=True)
    turns = 0
    while not select.select([0], [], [], 0)[0]:
        for one, other in pairs * 8:
            exchange(folder, one, folder, other, 2)
        turns += 8 * len(pairs)
    print(turns, flush=True)
""")


@dataclass
class Arena:
    """A workspace with a folder and a file that keep turning into links, and what lies outside of it.

    `folder/` and `leaf.md` are swapped with links of the same content outside.
    """

    path: Path
    root: Root
    context: ToolContext
    inside: int
    tools: dict[str, Tool[Any]]
    crowd: int
    outcomes: dict[str, int] = field(default_factory=lambda: {"done": 0, "refused": 0})
    escapes: list[str] = field(default_factory=list)

    async def use(self, name: str, **arguments: object) -> str:
        tool = self.tools[name]
        return text_of((await tool.run(tool.parse(arguments), self.context)).content)

    def restore(self) -> None:
        """Make the files inside what they were; reached by a descriptor, whatever they are called now."""
        for name in ("file.md", "new.md", "moved.md"):
            if name != "file.md":
                _remove(name, self.inside)
        _write("file.md", INSIDE, self.inside)

    def relink(self) -> None:
        """Put a file and a link back: a write may replace the link, it just must not write through it."""
        memory = self.path / "workspace" / "memory"
        (memory / "fresh").write_text(INSIDE)
        (memory / "fresh").rename(memory / "leaf.md")
        (memory / "fresh").symlink_to(self.path / "outside" / "file.md")
        (memory / "fresh").rename(memory / "leaf-link")

    def judge(self, where: str) -> None:
        """Note what changed outside."""
        found = {path.name: path.read_text() for path in (self.path / "outside").iterdir()}
        expected = {
            "file.md": OUTSIDE,
            "OUTSIDE.md": OUTSIDE,
            **{f"f{number}.md": OUTSIDE for number in range(self.crowd)},
        }
        if found != expected:
            self.escapes.append(f"{where}: outside is {sorted(found.items() ^ expected.items())[:4]}")


def _write(name: str, text: str, folder: int) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=folder)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def _remove(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


@asynccontextmanager
async def arena(path: Path, resolver: Resolver | None = None, crowd: int = 2) -> AsyncIterator[Arena]:
    """Build it with `crowd` more files in the folder, and swap until the end."""
    workspace, outside = path / "workspace", path / "outside"
    for folder in (workspace / "memory" / "folder", outside):
        folder.mkdir(parents=True)
        words = OUTSIDE if folder is outside else INSIDE
        (folder / "file.md").write_text(words)
        for number in range(crowd):
            (folder / f"f{number}.md").write_text(words)
    (outside / "OUTSIDE.md").write_text(OUTSIDE)
    memory = workspace / "memory"
    (memory / "folder-link").symlink_to(outside)
    (memory / "leaf.md").write_text(INSIDE)
    (memory / "leaf-link").symlink_to(outside / "file.md")
    inside = os.open(memory / "folder", os.O_RDONLY | os.O_DIRECTORY)
    clock, agent = SystemClock(), AgentId("main")
    parts = ToolParts(ToolsSettings(), clock, random_id, CommandTable(clock, random_id), Board())
    tools = {tool.name: tool for module in (read_write, search, patch) for tool in module.make_tools(parts)}
    argv = [sys.executable, "-S", "-c", SWAPPER, str(memory), "folder", "folder-link", "leaf.md", "leaf-link"]
    with Root.open(workspace, resolver=resolver) as root:
        context = ToolContext(agent, SessionKey.main(agent), RunId("r"), "c", root)
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as swapper:
            assert swapper.stdout is not None
            assert swapper.stdout.readline() == "ready\n"
            made = Arena(path, root, context, inside, tools, crowd)
            try:
                yield made
            finally:
                told, _ = swapper.communicate("stop\n")
                os.close(inside)
        assert int(told) > 0, "nothing was swapped"
    made.judge("in the end")


@contextmanager
def memory_place() -> Iterator[Path]:
    """A folder in memory where there is one: a disk that is asked to sync each time would make the races rare."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as place:
        yield Path(place)


Operation = Callable[[Arena], Awaitable[str]]


async def read_folder(arena: Arena) -> str:
    return await arena.use("read", path="memory/folder/file.md")


async def read_leaf(arena: Arena) -> str:
    return await arena.use("read", path="memory/leaf.md")


async def write_folder(arena: Arena) -> str:
    return await arena.use("write", path="memory/folder/file.md", content=INSIDE + "more\n")


async def write_new(arena: Arena) -> str:
    _remove("new.md", arena.inside)
    return await arena.use("write", path="memory/folder/new.md", content="new\n")


async def write_deep(arena: Arena) -> str:
    return await arena.use("write", path="memory/folder/deeper/still/new.md", content="new\n")


async def write_leaf(arena: Arena) -> str:
    arena.relink()
    return await arena.use("write", path="memory/leaf.md", content=INSIDE)


async def edit_folder(arena: Arena) -> str:
    _write("file.md", INSIDE, arena.inside)
    return await arena.use("edit", path="memory/folder/file.md", oldText="inside", newText="INSIDE")


async def patch_add(arena: Arena) -> str:
    _remove("new.md", arena.inside)
    return await _patch(arena, "*** Add File: memory/folder/new.md\n+new")


async def patch_update(arena: Arena) -> str:
    _write("file.md", INSIDE, arena.inside)
    return await _patch(arena, "*** Update File: memory/folder/file.md\n@@\n-inside words\n+other words")


async def patch_delete(arena: Arena) -> str:
    _write("file.md", INSIDE, arena.inside)
    return await _patch(arena, "*** Delete File: memory/folder/file.md")


async def patch_move(arena: Arena) -> str:
    arena.restore()
    lines = [
        "*** Update File: memory/folder/file.md",
        "*** Move to: memory/folder/moved.md",
        "@@",
        "-inside words",
        "+x",
    ]
    return await _patch(arena, "\n".join(lines))


async def _patch(arena: Arena, body: str) -> str:
    return await arena.use("apply_patch", input=f"*** Begin Patch\n{body}\n*** End Patch\n")


async def list_folder(arena: Arena) -> str:
    return await arena.use("ls", path="memory/folder")


async def find_files(arena: Arena) -> str:
    return await arena.use("find", pattern="**/*.md", path="memory")


async def search_files(arena: Arena) -> str:
    return await arena.use("grep", pattern="words", path="memory", limit=1000)


async def remember(arena: Arena) -> str:
    library = Library([NoteFolder(arena.root, "memory", folders=("memory",))])
    return library.read("memory/folder/file.md").text


async def remember_leaf(arena: Arena) -> str:
    library = Library([NoteFolder(arena.root, "memory", folders=("memory",))])
    return library.read("memory/leaf.md").text


async def work_in(arena: Arena) -> str:
    with open_workdir(arena.context, "memory/folder") as folder:
        place, outside = os.fstat(folder), (arena.path / "outside").stat()
        return "OUTSIDE" if os.path.samestat(place, outside) else "inside"


async def append_folder(arena: Arena) -> str:
    arena.root.append("memory/folder/new.md", b"line\n", sync=False)
    return ""


async def read_naively(arena: Arena) -> str:
    """How not to do it: look where the path leads, then open it."""
    path = arena.root.path / "memory" / "folder" / "file.md"
    try:
        if not path.resolve(strict=True).is_relative_to(arena.root.path.resolve()):
            raise ToolFailed("outside")
        return path.read_text()
    except OSError as error:
        raise ToolFailed("swapped away") from error


OPERATIONS: tuple[Operation, ...] = (
    read_folder,
    read_leaf,
    write_folder,
    write_new,
    write_deep,
    write_leaf,
    edit_folder,
    patch_add,
    patch_update,
    patch_delete,
    patch_move,
    list_folder,
    find_files,
    search_files,
    remember,
    remember_leaf,
    work_in,
    append_folder,
)
JUDGED_EVERY = 500


async def race(operation: Operation, times: int, path: Path, resolver: Resolver | None = None) -> Arena:
    """Run an operation against the swapper; gives the arena with what happened."""
    crowd = GREPPED if operation is search_files else 2
    async with arena(path, resolver, crowd) as found:
        for number in range(-(-times // crowd) if operation is search_files else times):
            try:
                seen = await operation(found)
                found.outcomes["done"] += 1
                if "OUTSIDE" in seen:
                    found.escapes.append(f"try {number} saw what is outside")
            except (ToolFailed, StorageError) as refusal:
                found.outcomes["refused"] += 1
                if "OUTSIDE" in str(refusal):
                    found.escapes.append(f"try {number} told what is outside")
            if number % JUDGED_EVERY == 0:
                found.judge(f"try {number}")
    return found
