"""The type of a file by its content: what a service or a name says about it proves nothing."""

from __future__ import annotations

import codecs
import re
import zipfile
from io import BytesIO

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"\x1f\x8b", "application/gzip"),
    (b"7z\xbc\xaf", "application/x-7z-compressed"),
    (b"MZ", "application/x-executable"),
    (b"\x7fELF", "application/x-executable"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
PDF, HTML, PLAIN = "application/pdf", "text/html", "text/plain"
_MS_OFFICE, _ODF = "application/vnd.openxmlformats-officedocument.", "application/vnd.oasis.opendocument."
DOCX, XLSX, PPTX = (
    f"{_MS_OFFICE}{kind}"
    for kind in ("wordprocessingml.document", "spreadsheetml.sheet", "presentationml.presentation")
)
ODT, ODS, ODP = (f"{_ODF}{kind}" for kind in ("text", "spreadsheet", "presentation"))
_OFFICE = {"word/document.xml": DOCX, "xl/workbook.xml": XLSX, "ppt/presentation.xml": PPTX}
EXTENSIONS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    PDF: ".pdf",
    "audio/ogg": ".ogg",
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "audio/wav": ".wav",
    "audio/flac": ".flac",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "application/zip": ".zip",
    "application/gzip": ".gz",
    PLAIN: ".txt",
    HTML: ".html",
    DOCX: ".docx",
    XLSX: ".xlsx",
    PPTX: ".pptx",
    ODT: ".odt",
    ODS: ".ods",
    ODP: ".odp",
}
"""The extension under which a file of a type is stored; others are stored as `.bin`."""
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
DOCUMENTS = frozenset({PDF, DOCX, XLSX, PPTX, ODT, ODS, ODP})
"""Types whose text is extracted; HTML and plain text are text already."""
_TEXT_SAMPLE = 8_192
_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MIN_ASCII = 0.7
"""How much of a text in a code page of Europe is ASCII; less is more likely not text."""
_CHARSET = re.compile(rb"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{2,40})", re.IGNORECASE)


def detect_type(data: bytes) -> str:
    """Return the media type of a file's content."""
    for start, media_type in _SIGNATURES:
        if data.startswith(start):
            return media_type
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12], "application/octet-stream")
    if data[4:8] == b"ftyp":
        return "audio/mp4" if data[8:11] == b"M4A" else "video/mp4"
    if data[:4] == b"PK\x03\x04":
        return _zip_type(data)
    return _text_type(data)


def decode_text(data: bytes, *, is_html: bool = False) -> str:
    """Return a text in its encoding: the one that a mark or a page names, else UTF-8, else that of Western Europe."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    named = _CHARSET.search(data[:_TEXT_SAMPLE]) if is_html else None
    for encoding in (*((named[1].decode("ascii"),) if named else ()), "utf-8-sig"):
        try:
            return data.decode(encoding)
        except (UnicodeError, LookupError):
            continue
    return data.decode("cp1252", "replace")


def _zip_type(data: bytes) -> str:
    # The format of OpenDocument says that its type is the first entry, not compressed, at the start of the file.
    if data[30:38] == b"mimetype":
        for kind in (ODT, ODS, ODP):
            if data[38 : 38 + len(kind) + 1].rstrip(b"P") == kind.encode():
                return kind
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            names = set(archive.namelist()[:2_000])
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "application/zip"
    return next((kind for name, kind in _OFFICE.items() if name in names), "application/zip")


def _text_type(data: bytes) -> str:
    sample = data[:_TEXT_SAMPLE]
    if sample.startswith(_MARKS):
        text = decode_text(sample)
    elif b"\x00" in sample:
        return "application/octet-stream"
    else:
        found = _decode_sample(sample)
        if found is None:
            return "application/octet-stream"
        text = found
    return HTML if text.lstrip()[:15].lower().startswith(("<!doctype html", "<html")) else PLAIN


def _decode_sample(sample: bytes) -> str | None:
    for cut in range(4):  # the sample can end inside a character
        try:
            return sample[: len(sample) - cut].decode("utf-8")
        except UnicodeDecodeError:
            continue
    ascii_share = sum(byte < 0x80 for byte in sample) / len(sample)
    if _CONTROLS.search(sample) or ascii_share < _MIN_ASCII:
        return None
    return sample.decode("cp1252", "replace")
