"""The read, write and edit tools."""

from __future__ import annotations

import difflib
from functools import partial
from typing import Any, Self

from anyio import to_thread
from pydantic import Field, model_validator

from retinue.core.clock import IdFactory, random_id
from retinue.core.errors import StorageError, ToolFailed
from retinue.core.messages import Text, text_of
from retinue.core.trust import Trust
from retinue.security.escaping import file_name
from retinue.security.untrusted_text import TextSource, sanitise, wrap_untrusted
from retinue.storage.files import EntryKind, NotRegular, NotThere, Root, TooLarge
from retinue.toolkit.agreement import agree_to_leave
from retinue.toolkit.origin import note_write, origin_of
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.paths import locate_readable, locate_writable, told
from retinue.toolkit.pictures import MAX_PICTURE_BYTES, as_image
from retinue.toolkit.text import Replacement, SourceText, looks_binary, replace_all
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput

MAX_READ_BYTES = 64_000_000
MAX_EDIT_BYTES = 8_000_000
PAGE_LINES = 2_000
PAGE_CHARS = 48_000
_SUGGESTIONS = 5


class ReadArguments(Arguments):
    path: str
    offset: int | None = Field(default=None, ge=1, description="first line")
    limit: int | None = Field(default=None, ge=1, description="number of lines")


class WriteArguments(Arguments):
    path: str
    content: str


class Edit(Arguments):
    old_text: str = Field(alias="oldText", min_length=1)
    new_text: str = Field(alias="newText")


class EditArguments(Arguments):
    path: str
    edits: list[Edit] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _accept_a_single_edit(cls, data: Any) -> Any:
        """Models trained on the one-edit form write `oldText` and `newText` beside the path."""
        if isinstance(data, dict) and "oldText" in data and "edits" not in data:
            data = dict(data)
            data["edits"] = [{"oldText": data.pop("oldText"), "newText": data.pop("newText", "")}]
        return data

    @model_validator(mode="after")
    def _change_something(self) -> Self:
        if all(edit.old_text == edit.new_text for edit in self.edits):
            raise ValueError("oldText and newText are the same")
        return self


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """The tools that read and change single files."""
    return (
        Tool(
            name="read",
            summary="Read a file",
            description="Read a text file or picture; long files come in pages.",
            arguments=ReadArguments,
            run=partial(read_file, new_id=parts.new_id),
        ),
        Tool(
            name="write",
            summary="Create or replace a file",
            description="Create a file or replace it whole.",
            arguments=WriteArguments,
            run=write_file,
            parallel=False,
        ),
        Tool(
            name="edit",
            summary="Change parts of a file",
            description="Replace exact pieces of a file; each oldText must occur once.",
            arguments=EditArguments,
            run=edit_file,
            parallel=False,
        ),
    )


async def read_file(arguments: ReadArguments, context: ToolContext, *, new_id: IdFactory = random_id) -> ToolOutput:
    """A page of a text file, or a picture; what came from outside is marked as such."""
    root, relative = locate_readable(context, arguments.path)
    output, text = await to_thread.run_sync(_read, root, relative, arguments)
    # Judged by the whole file: a page may begin or end within a line.
    with told():
        origin = origin_of(context, root, relative, text)
    if origin is not Trust.UNTRUSTED:
        return output
    marked = wrap_untrusted(text_of(output.content), TextSource.MEMORY, new_id=new_id)
    return ToolOutput.of(marked, trust=Trust.UNTRUSTED)


def _read(root: Root, relative: str, arguments: ReadArguments) -> tuple[ToolOutput, str]:
    """What to show of a file, and its whole text if it is one."""
    data = load(root, relative, MAX_READ_BYTES)
    image = as_image(data, arguments.path) if len(data) <= MAX_PICTURE_BYTES else None
    if image is not None:
        return ToolOutput((Text(f"{arguments.path}: {image.media_type}, {len(data):,} bytes."), image)), ""
    if looks_binary(data):
        raise ToolFailed(
            f"'{arguments.path}' is a binary file of {len(data):,} bytes. Use exec with a program that understands it."
        )
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    return ToolOutput.of(page(text, arguments.offset, arguments.limit)), text


def page(text: str, offset: int | None, limit: int | None) -> str:
    """Part of a text, with a note on what comes after it; a text that fits comes as it is."""
    if offset is None and limit is None and len(text) <= PAGE_CHARS and text.count("\n") < PAGE_LINES:
        return text or "(the file is empty)"
    lines = text.splitlines(keepends=True)
    start = (offset or 1) - 1
    if start >= len(lines):
        raise ToolFailed(f"The file has only {len(lines):,} lines; line {start + 1:,} does not exist.")
    end = start
    room = PAGE_CHARS
    last = min(len(lines), start + min(limit or PAGE_LINES, PAGE_LINES))
    while end < last and len(lines[end]) <= room:
        room -= len(lines[end])
        end += 1
    if end == start:
        line = lines[start]
        note = f"(line {start + 1:,} of {len(lines):,}, cut at {PAGE_CHARS:,} of {len(line):,} characters)"
        return f"{line[:PAGE_CHARS]}\n\n{note}"
    shown = "".join(lines[start:end])
    if end == len(lines):
        return shown
    return f"{shown}\n(lines {start + 1:,}-{end:,} of {len(lines):,}; go on with offset={end + 1})"


def load(root: Root, relative: str, max_bytes: int) -> bytes:
    """A file's bytes; a missing one is reported with the names that come near."""
    try:
        with told():
            return root.read(relative, max_bytes=max_bytes).data
    except ToolFailed as failure:
        match failure.__cause__:
            case NotThere():
                raise ToolFailed(f"'{relative}' does not exist.{suggest(root, relative)}") from failure
            case NotRegular() if _is_folder(root, relative):
                raise ToolFailed(f"'{relative}' is a folder. Use ls to see what it holds.") from failure
            case TooLarge():
                raise ToolFailed(
                    f"'{relative}' is larger than {max_bytes:,} bytes. Use grep, or exec with head, tail or split."
                ) from failure
        raise


def _is_folder(root: Root, relative: str) -> bool:
    try:
        with told():
            root.entries(relative)
    except ToolFailed:
        return False
    return True


def suggest(root: Root, relative: str) -> str:
    """A sentence with names near a missing one; empty where there are none."""
    folder, _, name = relative.rpartition("/")
    try:
        with told():
            beside = [
                entry.name + ("/" if entry.kind is EntryKind.DIR else "") for entry in root.entries(folder or ".")
            ]
    except ToolFailed:
        return f" Nor does its folder '{folder}'." if folder else ""
    lowered = {entry.lower(): entry for entry in beside}
    near = difflib.get_close_matches(name.lower(), lowered, n=_SUGGESTIONS, cutoff=0.5)
    if not near:
        return ""
    prefix = f"{folder}/" if folder else ""
    return f" Did you mean {', '.join(shown_name(prefix + lowered[name]) for name in near)}?"


def shown_name(path: str) -> str:
    """A path as the model sees it: its name, which a stranger may have chosen, neither hides nor imitates anything."""
    return sanitise(file_name(path))


async def write_file(arguments: WriteArguments, context: ToolContext) -> ToolOutput:
    """Create or replace a file."""
    root, relative = locate_writable(context, arguments.path)
    await agree_to_leave("write", root, relative, context)
    return await to_thread.run_sync(_write, context, root, relative, arguments.content)


def _write(context: ToolContext, root: Root, relative: str, content: str) -> ToolOutput:
    data = encode(content)
    with told():
        note_write(context, root, relative, before=_text_before(context, root, relative), after=content)
        root.write(relative, data)
    return ToolOutput.of(f"Wrote {len(data):,} bytes to {relative}.")


def _text_before(context: ToolContext, root: Root, relative: str) -> str:
    """What a file says before it is replaced; "" where nobody asks for it, or where it cannot be read."""
    if not context.tainted:
        return ""
    try:
        return root.read(relative, max_bytes=MAX_EDIT_BYTES).data.decode("utf-8", "replace")
    except StorageError:
        return ""


async def edit_file(arguments: EditArguments, context: ToolContext) -> ToolOutput:
    """Replace pieces of a file: all of them, or none."""
    root, relative = locate_writable(context, arguments.path)
    await agree_to_leave("edit", root, relative, context)
    return await to_thread.run_sync(_edit, context, root, relative, arguments)


def _edit(context: ToolContext, root: Root, relative: str, arguments: EditArguments) -> ToolOutput:
    data = load(root, relative, MAX_EDIT_BYTES)
    if looks_binary(data):
        raise ToolFailed(f"'{relative}' is a binary file; it cannot be edited as text.")
    source = SourceText.decode(data, relative)
    edits = [Replacement(edit.old_text, edit.new_text) for edit in arguments.edits]
    changed, first = replace_all(source.text, edits, relative)
    with told():
        note_write(context, root, relative, before=source.text, after=changed)
        root.write(relative, source.encode(changed))
    count = f"{len(edits)} places" if len(edits) > 1 else "1 place"
    return ToolOutput.of(f"Edited {relative}: {count}, first at line {first}.")


def encode(text: str) -> bytes:
    """The text as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolFailed(
            "The text holds half of a surrogate pair and cannot be written. Send whole characters."
        ) from None
