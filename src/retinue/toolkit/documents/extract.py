"""Extracting the text of a document, in a process with limits: a hostile document can occupy its reader for hours."""

from __future__ import annotations

import json
import subprocess
import sys

from retinue.toolkit.documents.file_types import DOCUMENTS, HTML, PLAIN, decode_text
from retinue.toolkit.documents.package import MAX_TEXT_CHARS, DocumentUnreadable

SECONDS = 30.0
_READER = "retinue.toolkit.documents.reader_process"


def has_text(media_type: str) -> bool:
    """Return whether the files of a type can be read as text."""
    return media_type in DOCUMENTS or media_type in (PLAIN, HTML)


def extract_text(data: bytes, media_type: str, *, seconds: float = SECONDS) -> str:
    """Return the text of a document; raise `DocumentUnreadable` with the reason if there is none. Blocks."""
    if media_type == PLAIN:
        return decode_text(data[: 4 * MAX_TEXT_CHARS])[:MAX_TEXT_CHARS]
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-X", "utf8", "-m", _READER, media_type],
            input=data,
            capture_output=True,
            timeout=seconds,
            check=True,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise DocumentUnreadable(f"reading it took longer than {seconds:g} seconds") from None
    except (subprocess.SubprocessError, OSError, ValueError):
        raise DocumentUnreadable("its content is damaged or too large") from None
    if "problem" in answer:
        raise DocumentUnreadable(str(answer["problem"]))
    if not str(answer["text"]).strip():
        raise DocumentUnreadable("it contains no text; it may consist of pictures")
    return str(answer["text"])
