"""Text and pages of PDF files."""

from __future__ import annotations

import io

import pypdf
import pytest
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


def make_pdf(*pages: str, password: str = "") -> bytes:
    writer = pypdf.PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in pages:
        page = writer.add_blank_page(width=595, height=842)
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): writer._add_object(font)})}
        )
        if text:
            stream = DecodedStreamObject()
            stream.set_data(f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET".encode())
            page[NameObject("/Contents")] = writer._add_object(stream)
    writer.add_metadata({"/Title": "Report"})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


@pytest.fixture
def pdf(workspace: Workspace) -> Script:
    workspace.write("report.pdf", make_pdf("First page", "Second page", "", "Last page"))
    return script("pdf", "pdf.py", workspace, libraries=True)


def test_the_text_comes_page_by_page(pdf: Script, workspace: Workspace) -> None:
    assert pdf.run("text", "report.pdf", "--pages", "1,3-") == (
        "--- page 1 ---\nFirst page\n\n--- page 3 ---\n(no text; the page is probably a scan)\n\n"
        "--- page 4 ---\nLast page\n"
    )
    assert pdf.json("text", "report.pdf", "--out", "report.txt") == {"file": "report.txt", "pages": 4}
    assert workspace.read("report.txt").count("--- page") == 4


def test_details(pdf: Script) -> None:
    found = pdf.json("info", "report.pdf")
    assert (found["pages"], found["size"], found["title"]) == (4, "210 x 297 mm", "Report")


def test_pages_are_split_and_merged_into_new_files(pdf: Script) -> None:
    pdf.run("split", "report.pdf", "--pages", "2,4", "--out", "part.pdf")
    assert [page["text"] for page in pdf.json("text", "part.pdf")] == ["Second page", "Last page"]
    assert pdf.json("merge", "part.pdf", "report.pdf", "--out", "all.pdf")["pages"] == 6
    assert "exists already" in pdf.fail("merge", "part.pdf", "--out", "report.pdf")


def test_an_encrypted_file_needs_its_password(pdf: Script, workspace: Workspace) -> None:
    workspace.write("secret.pdf", make_pdf("Hidden", password="open"))
    assert "give its password" in pdf.fail("text", "secret.pdf")
    assert pdf.json("text", "secret.pdf", "--password", "open")[0]["text"] == "Hidden"


def test_bad_input_is_refused(pdf: Script, workspace: Workspace) -> None:
    workspace.write("broken.pdf", "hello")
    assert "cannot read broken.pdf" in pdf.fail("text", "broken.pdf")
    assert "cannot read nowhere.pdf" in pdf.fail("info", "nowhere.pdf")
    assert "the file has 4 pages" in pdf.fail("text", "report.pdf", "--pages", "3-5")
    assert "write 3, 1-4" in pdf.fail("text", "report.pdf", "--pages", "all")


def test_without_the_library_the_message_says_how_to_get_it(workspace: Workspace) -> None:
    assert "start the script with `uv run" in script("pdf", "pdf.py", workspace).fail("info", "x.pdf")
