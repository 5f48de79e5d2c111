"""Small documents for tests, written by hand."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from io import BytesIO

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
_RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def package(parts: Mapping[str, str | bytes], *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A document of these parts."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for name, content in parts.items():
            stored = zipfile.ZIP_STORED if name == "mimetype" else compression
            archive.writestr(name, content, compress_type=stored)
    return packed.getvalue()


def bomb(name: str, megabytes: int) -> bytes:
    """A small archive whose part is that large when it is unpacked."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as part:
        part.write(b"<x>")
        for _ in range(megabytes):
            part.write(b"0" * 1_000_000)
        part.write(b"</x>")
    return packed.getvalue()


def docx(body: str, **parts: str) -> bytes:
    more = {f"word/{name}.xml": content for name, content in parts.items()}
    return package({"word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>", **more})


def paragraph(text: str, properties: str = "") -> str:
    before = f"<w:pPr>{properties}</w:pPr>" if properties else ""
    return f"<w:p>{before}<w:r><w:t>{text}</w:t></w:r></w:p>"


def relations(found: Mapping[str, tuple[str, str]]) -> str:
    each = "".join(
        f'<Relationship Id="{name}" Type="{_RELATION}/{kind}" Target="{target}"/>'
        for name, (kind, target) in found.items()
    )
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{each}</Relationships>'


def xlsx() -> bytes:
    """A workbook with a sheet of strings, dates, a truth value and empty cells, and a second sheet."""
    rows = (
        '<row><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>'
        '<row><c r="A2" s="1"><v>46095</v></c><c r="B2" s="2"><v>46095.5</v></c><c r="D2"><v>9.5</v></c></row>'
        '<row><c r="A3" t="b"><v>1</v></c><c r="B3" t="inlineStr"><is><t>in place</t></is></c></row><row/>'
    )
    return package(
        {
            "xl/workbook.xml": f'<workbook {R}><sheets><sheet name="Costs" sheetId="1" r:id="rId1"/>'
            '<sheet name="Rest" sheetId="2" r:id="rId2"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(
                {"rId1": ("worksheet", "worksheets/sheet1.xml"), "rId2": ("worksheet", "/xl/worksheets/sheet2.xml")}
            ),
            "xl/sharedStrings.xml": "<sst><si><t>day</t></si><si><r><t>mo</t></r><r><t>ment</t></r>"
            "<rPh><t>sound</t></rPh></si></sst>",
            "xl/styles.xml": '<styleSheet><numFmts><numFmt numFmtId="170" formatCode="dd\\.mm\\.yyyy hh:mm"/></numFmts>'
            '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="170"/></cellXfs></styleSheet>',
            "xl/worksheets/sheet1.xml": f"<worksheet><sheetData>{rows}</sheetData></worksheet>",
            "xl/worksheets/sheet2.xml": '<worksheet><row><c r="A1"><v>2</v></c></row></worksheet>',
        }
    )


def pptx() -> bytes:
    """Two slides, in another order than their names, with notes at the first one."""

    def slide(text: str) -> str:
        return f"<sld {A}><a:p><a:r><a:t>{text}</a:t></a:r><a:fld><a:t>7</a:t></a:fld></a:p></sld>"

    return package(
        {
            "ppt/presentation.xml": f'<presentation {R}><sldIdLst><sldId r:id="rId9" id="256"/>'
            '<sldId id="257" r:id="rId3"/></sldIdLst></presentation>',
            "ppt/_rels/presentation.xml.rels": relations(
                {"rId3": ("slide", "slides/slide1.xml"), "rId9": ("slide", "slides/slide2.xml")}
            ),
            "ppt/slides/slide1.xml": slide("The end"),
            "ppt/slides/slide2.xml": slide("Welcome"),
            "ppt/slides/_rels/slide2.xml.rels": relations({"rId1": ("notesSlide", "../notesSlides/notes1.xml")}),
            "ppt/notesSlides/notes1.xml": slide("Wait for silence."),
        }
    )


def open_document(kind: str, body: str) -> bytes:
    """A document of OpenDocument: of the kind `text`, `spreadsheet` or `presentation`."""
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "text", "table")
    )
    drawn = 'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"'
    content = f"<office:document-content {names} {drawn}><office:body>{body}</office:body></office:document-content>"
    return package({"mimetype": f"application/vnd.oasis.opendocument.{kind}", "content.xml": content})


def pdf(*pages: str) -> bytes:
    """A PDF with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, text in enumerate(pages):
        drawing = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode("cp1252")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawing), drawing))
    written, places = bytearray(b"%PDF-1.4\n"), []
    for number, content in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = len(written)
    entries = b"".join(b"%010d 00000 n \n" % place for place in places)
    written += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, entries)
    written += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(written)
