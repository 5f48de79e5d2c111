"""Office documents as text."""

from __future__ import annotations

import io
import zipfile

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
DOCX = f"""<w:document {W}><w:body>
<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Offer</w:t></w:r></w:p>
<w:p><w:r><w:t>Dear </w:t></w:r><w:del><w:r><w:delText>Bob</w:delText></w:r></w:del><w:r><w:t>Ada,</w:t></w:r></w:p>
<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>tea</w:t></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Item</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>a|b</w:t></w:r></w:p></w:tc></w:tr></w:tbl>
</w:body></w:document>"""
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
RELATIONS = '<Relationships><Relationship Id="{0}" Target="{1}"/></Relationships>'
XLSX = {
    "xl/workbook.xml": f'<workbook {R}><sheets><sheet name="Sales" r:id="r1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": RELATIONS.format("r1", "worksheets/sheet1.xml"),
    "xl/sharedStrings.xml": "<sst><si><t>Region</t></si><si><r><t>No</t></r><r><t>rth</t></r></si></sst>",
    "xl/worksheets/sheet1.xml": (
        '<worksheet><sheetData><row><c r="A1" t="s"><v>0</v></c><c r="C1" t="inlineStr"><is><t>Sum</t></is></c></row>'
        '<row><c r="A2" t="s"><v>1</v></c><c r="B2" t="b"><v>1</v></c><c r="C2"><f>1+1</f><v>2</v></c></row>'
        "</sheetData></worksheet>"
    ),
}
PPTX = {
    "ppt/presentation.xml": f'<p><sldIdLst><sldId id="256" {R} r:id="r1"/></sldIdLst></p>',
    "ppt/_rels/presentation.xml.rels": RELATIONS.format("r1", "slides/slide1.xml"),
    "ppt/slides/slide1.xml": "<sld><p><r><t>Plan</t></r></p></sld>",
    "ppt/slides/_rels/slide1.xml.rels": RELATIONS.format("n", "../notesSlides/notesSlide1.xml"),
    "ppt/notesSlides/notesSlide1.xml": "<notes><p><r><t>Speak slowly</t></r></p></notes>",
}
OPEN = 'xmlns:t="urn:text" xmlns:b="urn:table" xmlns:o="urn:office"'
ODT = f"""<o:document-content {OPEN}><o:body><o:text><t:h t:outline-level="2">Head</t:h><t:p>A<t:s t:c="2"/>b</t:p>
<t:list><t:list-item><t:p>one</t:p></t:list-item></t:list></o:text></o:body></o:document-content>"""
ODS = f"""<o:document-content {OPEN}><o:body><o:spreadsheet><b:table b:name="One"><b:table-row>
<b:table-cell b:number-columns-repeated="2"><t:p>x</t:p></b:table-cell>
<b:table-cell b:number-columns-repeated="16000"/></b:table-row></b:table>
</o:spreadsheet></o:body></o:document-content>"""
EPUB = {
    "META-INF/container.xml": '<container><rootfile full-path="OPS/book.opf"/></container>',
    "OPS/book.opf": '<package><item id="a" href="a.xhtml"/><itemref idref="a"/></package>',
    "OPS/a.xhtml": "<html><head><title>x</title></head><body><h1>Tea</h1><p>Is <b>good</b>.</p><script>no</script>",
}
EML = """From: ada@example.org
Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: text/plain

Hello.
--b
Content-Type: application/pdf
Content-Disposition: attachment; filename=offer.pdf

x
--b--
"""


def pack(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


@pytest.fixture
def office(workspace: Workspace) -> Script:
    return script("office-text", "office.py", workspace)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.docx", pack({"word/document.xml": DOCX}), "# Offer\n\nDear Ada,\n\n- tea\n\n| Item | a\\|b |\n|---|---|\n"),
        ("a.xlsx", pack(XLSX), "## Sales\n\n| Region |  | Sum |\n|---|---|---|\n| North | TRUE | 2 |\n"),
        ("a.pptx", pack(PPTX), "## Slide 1\n\nPlan\n\nNote: Speak slowly\n"),
        ("a.odt", pack({"content.xml": ODT}), "## Head\n\nA  b\n\n- one\n"),
        ("a.ods", pack({"content.xml": ODS}), "## One\n\n| x | x |\n|---|---|\n"),
        ("a.epub", pack(EPUB), "## Part 1\n\n# Tea\n\nIs good.\n"),
        ("a.eml", EML.encode(), "From: ada@example.org\nSubject: Grüße\n\nHello.\n\nAttachment: offer.pdf\n"),
        ("a.html", b"<p>One<br>two</p>", "One\n\ntwo\n"),
    ],
)
def test_each_format_becomes_markdown(office: Script, workspace: Workspace, name: str, data: bytes, text: str) -> None:
    workspace.write(name, data)
    assert office.run(name) == text


def test_one_sheet_as_csv_or_in_part(office: Script, workspace: Workspace) -> None:
    workspace.write("a.xlsx", pack(XLSX))
    assert office.run("a.xlsx", "--csv") == "Region,,Sum\nNorth,TRUE,2\n"
    assert office.run("a.xlsx", "--limit", 1).endswith("(1 of 2 rows)\n")
    assert office.json("a.xlsx", "--sheet", "sales")[0]["rows"][1] == ["North", "TRUE", "2"]
    assert "there are: Sales" in office.fail("a.xlsx", "--sheet", "Costs")
    office.run("a.xlsx", "--out", "a.md")
    assert workspace.read("a.md").startswith("## Sales")


def test_an_entity_bomb_does_not_grow(office: Script, workspace: Workspace) -> None:
    bomb = '<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><d><body><p><t>&b;</t></p></body></d>'
    workspace.write("a.docx", pack({"word/document.xml": bomb}))
    assert "is damaged" in office.fail("a.docx")


def test_bad_input_is_refused(office: Script, workspace: Workspace) -> None:
    workspace.write("a.doc", "x")
    assert "known are docm, docx" in office.fail("a.doc")
    workspace.write("a.docx", "x")
    assert "cannot read a.docx" in office.fail("a.docx")
    workspace.write("b.docx", pack({"x": "y"}))
    assert "damaged or encrypted" in office.fail("b.docx")
    assert "cannot read nowhere.eml" in office.fail("nowhere.eml")
