#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["pypdf>=5"]
# ///
"""Read and change PDF files: text, info, split, merge."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypdf import PdfReader


class PdfError(Exception):
    """The request cannot be carried out; the message says why."""


def load(path: Path, password: str) -> PdfReader:
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError:
        raise PdfError(f"pypdf is not installed; start the script with `uv run {__file__}`") from None
    try:
        reader = PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(password):
            raise PdfError(f"{path} is encrypted; give its password with --password")
        len(reader.pages)
    except (PyPdfError, OSError, ValueError, KeyError, AttributeError) as failure:
        raise PdfError(f"cannot read {path}: {failure}") from failure
    return reader


def choose(text: str, count: int) -> list[int]:
    """Return the numbers of the pages that a text such as `1-3,7,9-` names."""
    numbers: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:\s*(-)\s*(\d*))?\s*", part)
        if found is None:
            raise PdfError(f"cannot read the pages {text!r}; write 3, 1-4, 5- or a list of these")
        first = int(found[1])
        last = int(found[3] or count) if found[2] else first
        if not 1 <= first <= last <= count:
            raise PdfError(f"the file has {count} pages; {part.strip()} is not among them")
        numbers += range(first, last + 1)
    return numbers


def text(options: argparse.Namespace) -> Any:
    reader = load(options.source, options.password)
    pages = []
    for number in choose(options.pages, len(reader.pages)):
        try:
            found = reader.pages[number - 1].extract_text().strip()
        except Exception as failure:  # a damaged page must not hide the others
            found = f"(this page cannot be read: {failure})"
        pages.append({"page": number, "text": found or "(no text; the page is probably a scan)"})
    if options.out is not None:
        write_new(
            options.out, "\n\n".join(f"--- page {page['page']} ---\n{page['text']}" for page in pages).encode() + b"\n"
        )
        return {"file": str(options.out), "pages": len(pages)}
    return pages


def info(options: argparse.Namespace) -> Any:
    reader = load(options.source, options.password)
    known = {key.removeprefix("/").lower(): str(value) for key, value in (reader.metadata or {}).items()}
    box = reader.pages[0].mediabox if reader.pages else None
    size = f"{float(box.width) / 72 * 25.4:.0f} x {float(box.height) / 72 * 25.4:.0f} mm" if box is not None else ""
    outline = [str(entry.title) for entry in reader.outline if not isinstance(entry, list)]
    fields = {name: str(field.get("/V", "")) for name, field in (reader.get_fields() or {}).items()}
    return {"pages": len(reader.pages), "size": size, **known, "outline": outline, "fields": fields}


def write_new(path: Path, data: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise PdfError(f"{path} exists already; choose another name") from None
    except OSError as failure:
        raise PdfError(f"cannot write {path}: {failure}") from failure


def assemble(options: argparse.Namespace) -> Any:
    readers = [load(path, options.password) for path in options.sources]
    import io

    from pypdf import PdfWriter

    writer, buffer = PdfWriter(), io.BytesIO()
    for reader in readers:
        for number in choose(options.pages, len(reader.pages)):
            writer.add_page(reader.pages[number - 1])
    writer.write(buffer)
    write_new(options.out, buffer.getvalue())
    return {"file": str(options.out), "pages": len(writer.pages)}


def show(result: Any) -> str:
    if isinstance(result, list):
        return "\n\n".join(f"--- page {page['page']} ---\n{page['text']}" for page in result)
    return "\n".join(f"{key}: {value}" for key, value in result.items() if value not in ("", [], {}))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--password", default="")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    reading = commands.add_parser("text", parents=[shared], help="the text, page by page")
    reading.add_argument("source", type=Path)
    reading.add_argument("--pages", default="1-")
    reading.add_argument("--out", type=Path)
    reading.set_defaults(run=text)
    telling = commands.add_parser("info", parents=[shared], help="pages, size, title, outline, form fields")
    telling.add_argument("source", type=Path)
    telling.set_defaults(run=info)
    for name, count, help_text in (("split", 1, "some pages of a file"), ("merge", "+", "several files in order")):
        command = commands.add_parser(name, parents=[shared], help=help_text)
        command.add_argument("sources", type=Path, nargs=count)
        command.add_argument("--pages", default="1-")
        command.add_argument("--out", type=Path, required=True)
        command.set_defaults(run=assemble)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        result = options.run(options)
    except PdfError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(result, ensure_ascii=False, indent=2) if options.json else show(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
