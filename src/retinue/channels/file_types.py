"""The type of a file by its content: what a service or a name says about it proves nothing."""

from __future__ import annotations

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
_OFFICE = {
    "word/document.xml": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xl/workbook.xml": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "ppt/presentation.xml": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
DOCX = _OFFICE["word/document.xml"]
EXTENSIONS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "application/pdf": ".pdf",
    "audio/ogg": ".ogg",
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "audio/wav": ".wav",
    "audio/flac": ".flac",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "application/zip": ".zip",
    "application/gzip": ".gz",
    "text/plain": ".txt",
    "text/html": ".html",
    **{kind: f".{suffix}" for kind, suffix in zip(_OFFICE.values(), ("docx", "xlsx", "pptx"), strict=True)},
}
"""The extension under which a file of a type is stored; others are stored as `.bin`."""
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TEXT_SAMPLE = 8_192


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


def _zip_type(data: bytes) -> str:
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            names = set(archive.namelist()[:2_000])
    except (zipfile.BadZipFile, OSError, ValueError):
        return "application/zip"
    return next((kind for name, kind in _OFFICE.items() if name in names), "application/zip")


def _text_type(data: bytes) -> str:
    sample = data[:_TEXT_SAMPLE]
    if b"\x00" in sample:
        return "application/octet-stream"
    for cut in range(4):  # the sample can end inside a character
        try:
            text = sample[: len(sample) - cut].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return "text/html" if text.lstrip()[:15].lower().startswith(("<!doctype html", "<html")) else "text/plain"
    return "application/octet-stream"
