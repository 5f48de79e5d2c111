"""The text of documents, and what becomes of documents that were made to do harm."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from retinue.toolkit.documents.extract import extract_text
from retinue.toolkit.documents.file_types import (
    DOCX,
    HTML,
    ODP,
    ODS,
    ODT,
    PDF,
    PLAIN,
    PPTX,
    XLSX,
    decode_text,
    detect_type,
)
from retinue.toolkit.documents.package import MAX_TEXT_CHARS, DocumentUnreadable
from retinue.toolkit.documents.reader_process import read_document
from tests.toolkit.documents import bomb, docx, open_document, package, paragraph, pdf, pptx, xlsx

ENTITIES = """<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><w:t>&b;</w:t>"""

TEXT = """<office:text><text:h text:outline-level="2">Head</text:h>
<text:p>A<text:s text:c="2"/>b<text:line-break/>c</text:p>
<text:list><text:list-item><text:p>item</text:p></text:list-item>
</text:list><office:annotation><text:p>a comment</text:p></office:annotation></office:text>"""
TABLE = """<table:table table:name="Costs"><table:table-row><table:table-cell><text:p>rent</text:p></table:table-cell>
<table:table-cell table:number-columns-repeated="2"><text:p>9</text:p></table:table-cell>
<table:table-cell table:number-columns-repeated="16000"/></table:table-row></table:table>"""


def read(data: bytes) -> str:
    """The text of a file of the type that its content shows."""
    return read_document(data, detect_type(data))


def test_a_word_document_has_headings_lists_tables_and_notes() -> None:
    cell = "<w:tc>{}</w:tc>".format
    table = f"<w:tbl><w:tr>{cell(paragraph('a'))}{cell(paragraph('b') + paragraph('c'))}{cell('<w:p/>')}</w:tr></w:tbl>"
    body = "".join(
        (
            paragraph("Plan", '<w:pStyle w:val="Heading2"/>'),
            "<w:p><w:r><w:t>We meet</w:t><w:tab/><w:t>at ten.</w:t><w:br/><w:t>Bring ünïcode</w:t></w:r></w:p>",
            paragraph("first", '<w:pStyle w:val="ListBullet"/>'),
            paragraph("second", "<w:numPr/>"),
            "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>",
            table,
            "<w:p><w:r><Choice><w:t>once</w:t></Choice><Fallback><w:t>twice</w:t></Fallback></w:r></w:p>",
        )
    )
    data = docx(
        body, footnotes=f'<w:footnotes xmlns:w="w"><w:footnote>{paragraph("a note")}</w:footnote></w:footnotes>'
    )
    assert detect_type(data) == DOCX
    assert read(data) == ("## Plan\nWe meet\tat ten.\nBring ünïcode\n- first\n- second\n\na | b c\nonce\n\na note")


def test_a_spreadsheet_has_its_sheets_rows_and_dates() -> None:
    data = xlsx()
    assert detect_type(data) == XLSX
    assert read(data) == (
        "## Costs\nday | moment\n2026-03-14 | 2026-03-14 12:00:00 |  | 9.5\nTRUE | in place\n\n## Rest\n2"
    )


def test_a_presentation_has_its_slides_in_order_with_notes() -> None:
    data = pptx()
    assert detect_type(data) == PPTX
    assert read(data) == "## Slide 1\nWelcome\n\nNotes:\nWait for silence.\n\n## Slide 2\nThe end"


@pytest.mark.parametrize(
    ("kind", "media_type", "body", "text"),
    [
        (
            "text",
            ODT,
            TEXT,
            "## Head\nA  b\nc\n- item",
        ),
        (
            "spreadsheet",
            ODS,
            TABLE,
            "## Costs\nrent | 9 | 9",
        ),
        (
            "presentation",
            ODP,
            "<draw:page><text:p>one</text:p></draw:page><draw:page><text:p>two</text:p></draw:page>",
            "## Slide 1\none\n\n## Slide 2\ntwo",
        ),
    ],
)
def test_open_documents(kind: str, media_type: str, body: str, text: str) -> None:
    data = open_document(kind, body)
    assert detect_type(data) == media_type
    assert read(data) == text


def test_a_pdf_has_its_pages() -> None:
    pytest.importorskip("pypdf")
    data = pdf("The safe opens at noon.", "Caf\u00e9")
    assert detect_type(data) == PDF
    assert read(data) == "(page 1)\nThe safe opens at noon.\n\n(page 2)\nCafé"
    with pytest.raises(DocumentUnreadable, match="damaged"):
        read(b"%PDF-1.7\nnothing else")


def test_texts_are_read_in_their_encoding() -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
        data = "Grüße aus Köln, wie geht es Ihnen?".encode(encoding)
        assert detect_type(data) == PLAIN, encoding
        assert decode_text(data) == "Grüße aus Köln, wie geht es Ihnen?", encoding
    page = '<html><meta charset="iso-8859-15"><title>Preise</title><p>9 €</p><script>x</script></html>'
    data = page.encode("iso-8859-15")
    assert detect_type(data) == HTML
    assert read(data) == "# Preise\n\n9 €"
    assert detect_type(bytes(range(256))) == "application/octet-stream"
    assert detect_type(b"\x80\x81\x82\x83" * 100) == "application/octet-stream"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (docx(ENTITIES), "damaged"),
        (package({"word/document.xml": ENTITIES}), "document type declaration"),
        (docx(paragraph("x"))[:-30], "damaged"),
        (package({"word/document.xml": b"<w:document>"}), "damaged"),
    ],
)
def test_what_is_damaged_or_declares_entities_is_not_read(data: bytes, why: str) -> None:
    with pytest.raises(DocumentUnreadable, match=why):
        read_document(data, DOCX)


@pytest.mark.slow
def test_a_document_that_is_huge_when_unpacked_is_not_read() -> None:
    data = bomb("word/document.xml", 250)
    assert len(data) < 1_000_000
    with pytest.raises(DocumentUnreadable, match="when unpacked"):
        extract_text(data, DOCX)


@pytest.mark.slow
def test_a_long_text_is_cut_and_a_slow_document_is_given_up() -> None:
    data = docx(paragraph("word " * 1_000) * 500, footnotes="<a>not reached")
    assert len(extract_text(data, DOCX)) <= MAX_TEXT_CHARS
    with pytest.raises(DocumentUnreadable, match="longer than"):
        extract_text(data, DOCX, seconds=0.001)


@pytest.mark.slow
def test_an_empty_document_and_a_password_are_explained(tmp_path: Path) -> None:
    with pytest.raises(DocumentUnreadable, match="no text"):
        extract_text(docx("<w:p/>"), DOCX)
    data = bytearray(package({"word/document.xml": "<a/>"}, compression=zipfile.ZIP_STORED))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + place] |= 1
    with pytest.raises(DocumentUnreadable, match="password"):
        extract_text(bytes(data), DOCX)
