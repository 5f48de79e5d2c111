"""The grep, find and ls tools."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from subprocess import DEVNULL, PIPE
from typing import Any

from anyio import to_thread
from msgspec import Struct

from retinue.core.clock import IdFactory, random_id
from retinue.core.errors import StorageError, ToolFailed
from retinue.core.globs import Glob
from retinue.core.labels import Label
from retinue.security.untrusted_text import TextSource, wrap_untrusted
from retinue.storage.files import EntryKind, FolderEntry, NotRegular, NotThere, Root
from retinue.toolkit.file_labels import label_of_files
from retinue.toolkit.files import grep_process as searcher
from retinue.toolkit.files.paths import locate_readable, storage_errors_explained
from retinue.toolkit.files.read_write import display_name, suggest_names
from retinue.toolkit.files.text import looks_binary
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument

MAX_FILE_BYTES = 4_000_000
MAX_ENTRIES = 200_000
MAX_CONTEXT_LINES = 10
MAX_PATTERN_CHARS = 1_000
GREP_TIMEOUT_SECONDS = 20.0
SKIPPED_FOLDERS = frozenset({".git", "node_modules", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".tox"})


class GrepArguments(Arguments):
    pattern: str = argument(min_length=1, max_length=MAX_PATTERN_CHARS, description="Python regex")
    path: str = "."
    glob: str | None = None
    ignore_case: bool = False
    context: int = argument(0, ge=0, le=MAX_CONTEXT_LINES)
    limit: int = argument(100, ge=1, le=1_000)


class FindArguments(Arguments):
    pattern: str = argument(description="glob, e.g. *.md or src/**/*.py")
    path: str = "."
    limit: int = argument(200, ge=1, le=5_000)


class ListArguments(Arguments):
    path: str = "."
    limit: int = argument(500, ge=1, le=5_000)


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the tools that search for files and in files."""
    return (
        grep_tool(GREP_TIMEOUT_SECONDS, parts.new_id),
        Tool(
            name="find",
            summary="Find files by name",
            description="Find files and folders by glob.",
            arguments=FindArguments,
            run=find_paths,
        ),
        Tool(
            name="ls",
            summary="List a folder",
            description="List a folder.",
            arguments=ListArguments,
            run=list_folder,
        ),
    )


def grep_tool(seconds: float, new_id: IdFactory = random_id) -> Tool[GrepArguments]:
    """Make the grep tool with a time limit; untrusted text is marked."""

    async def run(arguments: GrepArguments, context: ToolContext) -> ToolOutput:
        root, relative = locate_readable(context, arguments.path)
        found = await to_thread.run_sync(grep, context, root, relative, arguments, seconds, abandon_on_cancel=True)
        origin = label_of_files(context, root, found.files)
        if origin.is_foreign:
            return ToolOutput.of(wrap_untrusted(found.text, TextSource.MEMORY, new_id=new_id), label=origin)
        return ToolOutput.of(found.text or "No matches.", label=origin)

    return Tool(
        name="grep",
        summary="Search file contents",
        description="Find lines in files by regex.",
        arguments=GrepArguments,
        run=run,
    )


class Matches(Struct, frozen=True):
    """The formatted lines that a search found, and the files that contain them."""

    text: str
    files: tuple[str, ...]


def grep(context: ToolContext, root: Root, relative: str, arguments: GrepArguments, seconds: float) -> Matches:
    """Return the matching lines of the files below a path; the search process is killed at the time limit."""
    files = _list_files(context, root, relative, Glob(arguments.glob) if arguments.glob else None)
    header = {
        "pattern": arguments.pattern,
        "ignoreCase": arguments.ignore_case,
        "context": arguments.context,
        "limit": arguments.limit,
    }
    searched: list[str] = []
    printed, status = _run_grep(header, _read_text_files(root, files, searched), seconds)
    if status < 0:
        raise ToolFailed(
            f"The search took more than {seconds:g} seconds and was stopped. Use a simpler pattern or a smaller folder."
        )
    if status == searcher.BAD_PATTERN:
        raise ToolFailed(f"The pattern is not a valid regular expression: {printed}. Escape special characters.")
    numbers, _, found = printed.partition("\n")
    note = f"\n(stopped after {arguments.limit} matches; narrow the search or raise limit)"
    text = found + (note if status == searcher.LIMIT_REACHED else "")
    return Matches(text, tuple(searched[number] for number in json.loads(numbers or "[]")))


def _run_grep(header: dict[str, Any], files: Iterator[tuple[str, bytes]], seconds: float) -> tuple[str, int]:
    """Run the grep process on files; returns its output and exit status."""
    command = [sys.executable, "-I", "-S", "-X", "utf8", searcher.__file__]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        watchdog = threading.Timer(seconds, child.kill)
        watchdog.start()
        try:
            with suppress(BrokenPipeError), child.stdin as feed:
                feed.write(json.dumps(header).encode() + b"\n")
                for path, data in files:
                    feed.write(json.dumps([display_name(path), len(data)]).encode() + b"\n" + data)
            return child.stdout.read().decode("utf-8", "replace"), child.wait()
        finally:
            watchdog.cancel()
            child.kill()


def _read_text_files(root: Root, files: Iterator[str], searched: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield text files with their content, and add the path of each to `searched`."""
    for path in files:
        try:
            data = root.read(path, max_bytes=MAX_FILE_BYTES).data
        except StorageError:
            continue  # too large, deleted or unreadable: the other files are still searched
        if not looks_binary(data):
            searched.append(path)
            yield path, data


def _list_files(context: ToolContext, root: Root, relative: str, glob: Glob | None) -> Iterator[str]:
    if _is_file(root, relative):
        yield relative
        return
    for path, entry in _walk(context, root, relative):
        if entry.kind is EntryKind.FILE and (glob is None or glob.matches(_below(path, relative))):
            yield path


def _is_file(root: Root, relative: str) -> bool:
    try:
        with storage_errors_explained():
            return relative != "." and root.identify(relative) is not None
    except ToolFailed as failure:
        if isinstance(failure.__cause__, NotRegular):
            return False
        raise


def _below(path: str, folder: str) -> str:
    return path if folder == "." else path[len(folder) + 1 :]


def _walk(context: ToolContext, root: Root, relative: str) -> Iterator[tuple[str, FolderEntry]]:
    """Yield everything below a folder except the content of `SKIPPED_FOLDERS`."""
    prefix = "" if relative == "." else f"{relative}/"
    waiting = [(prefix, entry) for entry in reversed(_entries(context, root, relative))]
    seen = 0
    while waiting:
        prefix, entry = waiting.pop()
        seen += 1
        if seen > MAX_ENTRIES:
            raise ToolFailed(f"'{relative}' has more than {MAX_ENTRIES:,} entries. Search a smaller folder.")
        path = prefix + entry.name
        if entry.kind is EntryKind.DIR:
            if entry.name in SKIPPED_FOLDERS:
                continue
            with suppress(StorageError):
                waiting += [(f"{path}/", below) for below in reversed(root.entries(path))]
        yield path, entry


def _entries(context: ToolContext, root: Root, relative: str) -> list[FolderEntry]:
    try:
        with storage_errors_explained():
            return root.entries(relative)
    except ToolFailed as failure:
        if isinstance(failure.__cause__, NotThere):
            raise ToolFailed(f"'{relative}' does not exist.{suggest_names(context, root, relative)}") from failure
        raise


async def find_paths(arguments: FindArguments, context: ToolContext) -> ToolOutput:
    """Find the paths below a folder that match a glob."""
    root, relative = locate_readable(context, arguments.path)
    glob = Glob(arguments.pattern)

    def find() -> dict[str, str]:
        found: dict[str, str] = {}
        for path, entry in _walk(context, root, relative):
            if glob.matches(_below(path, relative)):
                found[path] = _format_entry(path, entry)
                if len(found) > arguments.limit:
                    break
        return found

    found = await to_thread.run_sync(find)
    label = label_of_files(context, root, found)
    return _format_listing(list(found.values()), arguments.limit, "No matches.", label)


async def list_folder(arguments: ListArguments, context: ToolContext) -> ToolOutput:
    """List the names in a folder."""
    root, relative = locate_readable(context, arguments.path)
    entries = await to_thread.run_sync(_entries, context, root, relative)
    names = [_format_entry(entry.name, entry) for entry in entries]
    label = label_of_files(context, root, (f"{relative}/{entry.name}" for entry in entries))
    return _format_listing(names, arguments.limit, "(the folder is empty)", label)


def _format_entry(path: str, entry: FolderEntry) -> str:
    return display_name(path) + {EntryKind.DIR: "/", EntryKind.LINK: "@"}.get(entry.kind, "")


def _format_listing(names: list[str], limit: int, nothing: str, label: Label) -> ToolOutput:
    """Return a listing; names of labelled files were chosen with their content, but are not private."""
    named = Label(label.origin)
    if len(names) <= limit:
        return ToolOutput.of("\n".join(names) or nothing, label=named)
    more = f"(more than {limit}; narrow the search or raise limit)"
    return ToolOutput.of("\n".join([*names[:limit], more]), label=named)
