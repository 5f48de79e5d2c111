"""The read, write, edit and image tools."""

from __future__ import annotations

import base64
import difflib
from functools import partial
from typing import Any

from anyio import to_thread
from msgspec.structs import replace

from retinue.core.clock import IdFactory, random_id
from retinue.core.errors import StorageError, ToolFailed
from retinue.core.labels import mix
from retinue.core.messages import Image, Text, text_of
from retinue.security.untrusted_text import TextSource, file_name, sanitise, wrap_untrusted
from retinue.storage.files import EntryKind, NotRegular, NotThere, Root, TooLarge
from retinue.storage.labels.written_lines import SKILLS
from retinue.toolkit.file_labels import (
    keeps_lines_apart,
    label_failure,
    label_of_files,
    label_of_text,
    record_replaced,
    record_write,
    recorded_path,
)
from retinue.toolkit.files.paths import locate_readable, locate_writable, storage_errors_explained
from retinue.toolkit.files.quota import require_room
from retinue.toolkit.files.text import Replacement, SourceText, encode_utf8, looks_binary, replace_all
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.taint import approve_instructions, require_approval_outside
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument

MAX_READ_BYTES = 64_000_000
MAX_EDIT_BYTES = 8_000_000
MAX_PICTURE_BYTES = 5_000_000
PAGE_LINES = 2_000
PAGE_CHARS = 48_000
_SUGGESTIONS = 5
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)

_DOCUMENT_STARTS = (b"%PDF-", b"PK\x03\x04")


class ReadArguments(Arguments):
    path: str
    offset: int | None = argument(None, ge=1, description="first line")
    limit: int | None = argument(None, ge=1, description="number of lines")


class WriteArguments(Arguments):
    path: str
    content: str


class Edit(Arguments):
    old_text: str = argument(min_length=1)
    new_text: str


class EditArguments(Arguments):
    path: str
    edits: list[Edit] = argument(min_length=1)

    @classmethod
    def _prepare(cls, data: Any) -> Any:
        """Accept `oldText` and `newText` beside the path, as models trained on that form write them."""
        if isinstance(data, dict) and "oldText" in data and "edits" not in data:
            data = dict(data)
            data["edits"] = [{"oldText": data.pop("oldText"), "newText": data.pop("newText", "")}]
        return data

    def _check(self) -> None:
        if all(edit.old_text == edit.new_text for edit in self.edits):
            raise ValueError("oldText and newText are the same")


class ImageArguments(Arguments):
    path: str
    question: str | None = None


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the tools that read and change single files."""
    return (
        Tool(
            name="read",
            summary="Read a file",
            description="Read a text file, document (PDF, Office, OpenDocument) or picture; long files come in pages.",
            arguments=ReadArguments,
            run=partial(read_file, new_id=parts.new_id),
        ),
        Tool(
            name="write",
            summary="Create or replace a file",
            description="Create a file or replace all of it.",
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


def make_image_tool(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the image tool."""
    return (
        Tool(
            name="image",
            summary="Look at a picture",
            description="Look at a picture file (png, jpeg, gif, webp).",
            arguments=ImageArguments,
            run=show_image,
            deferred=True,
        ),
    )


async def read_file(arguments: ReadArguments, context: ToolContext, *, new_id: IdFactory = random_id) -> ToolOutput:
    """Return a page of a text file, or a picture; untrusted text is marked."""
    root, relative = locate_readable(context, arguments.path)
    output, text, is_exact = await to_thread.run_sync(_read, context, root, relative, arguments)
    # The whole file is judged, because a page may begin or end within a line.
    with storage_errors_explained():
        exact = is_exact or not text
        origin = label_of_text(context, root, relative, text) if exact else label_of_files(context, root, [relative])
    if not origin.is_foreign or not text:
        return replace(output, label=mix([output.label, origin]))
    marked = wrap_untrusted(text_of(output.content), TextSource.MEMORY, new_id=new_id)
    return ToolOutput.of(marked, label=origin)


def _read(context: ToolContext, root: Root, relative: str, arguments: ReadArguments) -> tuple[ToolOutput, str, bool]:
    """Return what to show of a file, its whole text unless it is a picture, and whether these are its exact bytes."""
    data = load_bytes(context, root, relative, MAX_READ_BYTES)
    image = image_from_bytes(data, arguments.path) if len(data) <= MAX_PICTURE_BYTES else None
    if image is not None:
        return ToolOutput((Text(f"{arguments.path}: {image.media_type}, {len(data):,} bytes."), image)), "", True
    if data.startswith(_DOCUMENT_STARTS) and (document := _read_document(data, arguments.path)) is not None:
        return ToolOutput.of(format_page(document, arguments.offset, arguments.limit)), document, False
    if looks_binary(data):
        raise ToolFailed(
            f"'{arguments.path}' is a binary file of {len(data):,} bytes. Use exec with a program that understands it."
        )
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    return ToolOutput.of(format_page(text, arguments.offset, arguments.limit)), text, True


def _read_document(data: bytes, name: str) -> str | None:
    """Return the text of a document; None if the file is none."""
    # Few sessions read documents.
    from retinue.toolkit.documents.extract import extract_text
    from retinue.toolkit.documents.file_types import DOCUMENTS, detect_type
    from retinue.toolkit.documents.package import DocumentUnreadable

    media_type = detect_type(data)
    if media_type not in DOCUMENTS:
        return None
    try:
        return extract_text(data, media_type)
    except DocumentUnreadable as error:
        raise ToolFailed(f"The text of '{name}' ({len(data):,} bytes) could not be read: {error}.") from error


def format_page(text: str, offset: int | None, limit: int | None) -> str:
    """Return one page of a text with a note on how to continue; a text that fits is returned unchanged."""
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
    return f"{shown}\n(lines {start + 1:,}-{end:,} of {len(lines):,}; continue with offset={end + 1})"


def load_bytes(context: ToolContext, root: Root, relative: str, max_bytes: int) -> bytes:
    """Return a file's bytes; the error for a missing file suggests similar names."""
    try:
        with storage_errors_explained():
            return root.read(relative, max_bytes=max_bytes).data
    except ToolFailed as failure:
        match failure.__cause__:
            case NotThere():
                raise ToolFailed(f"'{relative}' does not exist.{suggest_names(context, root, relative)}") from failure
            case NotRegular() if _is_folder(root, relative):
                raise ToolFailed(f"'{relative}' is a folder. Use ls to list it.") from failure
            case TooLarge():
                raise ToolFailed(
                    f"'{relative}' is larger than {max_bytes:,} bytes. Use grep, or exec with head, tail or split."
                ) from failure
        raise


def _is_folder(root: Root, relative: str) -> bool:
    try:
        with storage_errors_explained():
            root.entries(relative)
    except ToolFailed:
        return False
    return True


def suggest_names(context: ToolContext, root: Root, relative: str) -> str:
    """Return a sentence that suggests similar names, or an empty string.

    Names that untrusted text may have chosen are suggested only if the request has read such text anyway.
    """
    folder, _, name = relative.rpartition("/")
    try:
        with storage_errors_explained():
            beside = [
                entry.name + ("/" if entry.kind is EntryKind.DIR else "") for entry in root.entries(folder or ".")
            ]
    except ToolFailed:
        return f" Its folder '{folder}' does not exist either." if folder else ""
    lowered = {entry.lower(): entry for entry in beside}
    near = difflib.get_close_matches(name.lower(), lowered, n=_SUGGESTIONS, cutoff=0.5)
    prefix = f"{folder}/" if folder else ""
    paths = [prefix + lowered[name] for name in near]
    shown = [path for path in paths if context.tainted or not label_of_files(context, root, [path]).is_foreign]
    return f" Did you mean {', '.join(map(display_name, shown))}?" if shown else ""


def display_name(path: str) -> str:
    """Return a path with control characters and forged markers removed: file names are untrusted text."""
    return sanitise(file_name(path))


async def write_file(arguments: WriteArguments, context: ToolContext) -> ToolOutput:
    """Create or replace a file."""
    root, relative = locate_writable(context, arguments.path)
    await require_approval_outside("write", root, relative, context)
    context = await approve_instructions("write", root, [relative], arguments.content, context)
    return await to_thread.run_sync(_write, context, root, relative, arguments.content)


def _write(context: ToolContext, root: Root, relative: str, content: str) -> ToolOutput:
    data = encode_utf8(content)
    require_room(context, len(data))
    with storage_errors_explained():
        record_write(context, root, relative, before=_text_before(context, root, relative), after=content)
        root.write(relative, data)
        record_replaced(context, root, relative, content)
    return ToolOutput.of(f"Wrote {len(data):,} bytes to {relative}.{describe_review(context, root, relative)}")


def describe_review(context: ToolContext, root: Root, relative: str) -> str:
    """Return a sentence about the review of a changed skill; empty for other files."""
    folder, *inside = recorded_path(context, root, relative).split("/")
    if folder != SKILLS.rstrip("/") or len(inside) < 2:
        return ""
    return f" The skill is off until the owner accepts it: `/skills diff {inside[0]}` in a chat, or `retinue skills`."


def _text_before(context: ToolContext, root: Root, relative: str) -> str:
    """Return a file's text before it is replaced; empty if it is not needed or cannot be read."""
    if not keeps_lines_apart(context, root, relative):
        return ""
    try:
        return root.read(relative, max_bytes=MAX_EDIT_BYTES).data.decode("utf-8", "replace")
    except StorageError:
        return ""


async def edit_file(arguments: EditArguments, context: ToolContext) -> ToolOutput:
    """Replace pieces of a file, all of them or none."""
    root, relative = locate_writable(context, arguments.path)
    await require_approval_outside("edit", root, relative, context)
    shown = "\n".join(f"- {edit.old_text}\n+ {edit.new_text}" for edit in arguments.edits)
    context = await approve_instructions("edit", root, [relative], shown, context)
    try:
        return await to_thread.run_sync(_edit, context, root, relative, arguments)
    except ToolFailed as failure:  # it quotes the nearest lines
        output = label_failure(context, root, [relative], failure, random_id)
        if output is None:
            raise
        return output


def _edit(context: ToolContext, root: Root, relative: str, arguments: EditArguments) -> ToolOutput:
    data = load_bytes(context, root, relative, MAX_EDIT_BYTES)
    if looks_binary(data):
        raise ToolFailed(f"'{relative}' is a binary file; it cannot be edited as text.")
    source = SourceText.decode(data, relative)
    edits = [Replacement(edit.old_text, edit.new_text) for edit in arguments.edits]
    changed, first = replace_all(source.text, edits, relative)
    if len(changed) > len(source.text):
        require_room(context, len(changed) - len(source.text))
    with storage_errors_explained():
        record_write(context, root, relative, before=source.text, after=changed)
        root.write(relative, source.encode(changed))
    count = f"{len(edits)} places" if len(edits) > 1 else "1 place"
    review = describe_review(context, root, relative)
    return ToolOutput.of(f"Edited {relative}: {count}, first at line {first}.{review}")


def media_type_of(data: bytes) -> str | None:
    """Return the media type of a picture by its first bytes, or None."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), None)


def image_from_bytes(data: bytes, name: str) -> Image | None:
    """Return a picture as message content, or None if the bytes are not a picture."""
    kind = media_type_of(data)
    if kind is None:
        return None
    if len(data) > MAX_PICTURE_BYTES:
        raise ToolFailed(
            f"The picture '{name}' has {len(data):,} bytes; at most {MAX_PICTURE_BYTES:,} can be shown. Scale it down."
        )
    return Image(kind, base64.b64encode(data).decode("ascii"))


async def show_image(arguments: ImageArguments, context: ToolContext) -> ToolOutput:
    """Load a picture and return it to the model."""
    root, relative = locate_readable(context, arguments.path)
    with storage_errors_explained():
        read = await to_thread.run_sync(lambda: root.read(relative, max_bytes=MAX_PICTURE_BYTES))
    image = image_from_bytes(read.data, arguments.path)
    if image is None:
        raise ToolFailed(f"'{arguments.path}' is not a png, jpeg, gif or webp picture.")
    caption = f"{arguments.path}: {image.media_type}, {len(read.data):,} bytes."
    label = label_of_files(context, root, [relative])
    return ToolOutput((Text(f"{caption} {arguments.question}" if arguments.question else caption), image), label)
