"""A process that reads one document from its standard input and writes its text as JSON.

Its argument is the type of the document. The answer is `{text}` or `{problem}`.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
from contextlib import suppress
from io import BytesIO

from retinue.toolkit.documents.file_types import DOCX, HTML, ODP, ODS, ODT, PDF, PPTX, XLSX, decode_text
from retinue.toolkit.documents.package import DocumentUnreadable, Package, TextFull, TextWriter

MAX_MEMORY_BYTES = 1 << 30
MAX_CPU_SECONDS = 60
MAX_PAGES = 2_000


def read_document(data: bytes, media_type: str) -> str:
    """Return the text of a document; raise `DocumentUnreadable` if that is not possible."""
    out = TextWriter()
    with suppress(TextFull):
        if media_type == PDF:
            _read_pdf(data, out)
        elif media_type == HTML:
            _read_html(data, out)
        else:
            _read_package(Package(data), media_type, out)
    return out.text()


def _read_package(package: Package, media_type: str, out: TextWriter) -> None:
    from retinue.toolkit.documents import office, sheets

    if media_type == DOCX:
        office.read_word(package, out)
    elif media_type == PPTX:
        office.read_slides(package, out)
    elif media_type == XLSX:
        sheets.read_workbook(package, out)
    elif media_type in (ODT, ODS, ODP):
        package.read(office.ODF_PART, office.OpenDocumentReader(out))
    else:
        raise DocumentUnreadable(f"files of the type {media_type} are not read")


def _read_html(data: bytes, out: TextWriter) -> None:
    from retinue.toolkit.web.page_text import parse_page

    page = parse_page(decode_text(data, is_html=True), "", markdown=True, whole=True)
    out.add(f"# {page.title}\n\n" if page.title else "")
    out.add(page.text)


def _read_pdf(data: bytes, out: TextWriter) -> None:
    try:
        import pypdf
        from pypdf.errors import PyPdfError
    except ImportError:
        raise DocumentUnreadable(
            "the reader of PDF files is not installed; install it with: pip install 'retinue[documents]'"
        ) from None
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        document = pypdf.PdfReader(BytesIO(data))
        if document.is_encrypted and not document.decrypt(""):
            raise DocumentUnreadable("it is protected with a password")
        for number, page in enumerate(document.pages[:MAX_PAGES], 1):
            found = page.extract_text().strip()
            if found:
                out.add(f"(page {number})\n{found}\n\n")
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise DocumentUnreadable(f"it is damaged: {error}") from None


def main() -> None:
    """Read the document of standard input."""
    # Some systems have a lower limit already or support none.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
    try:
        answer = {"text": read_document(sys.stdin.buffer.read(), sys.argv[1])}
    except DocumentUnreadable as error:
        answer = {"problem": str(error)}
    except MemoryError:
        answer = {"problem": "it needs too much memory"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
