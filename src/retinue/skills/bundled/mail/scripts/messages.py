"""Messages: their text, and the files that are attached to them."""

from __future__ import annotations

import email
import email.policy
import re
from email.message import EmailMessage
from html.parser import HTMLParser
from pathlib import Path

MAX_TEXT = 50_000


class MailError(Exception):
    """The request cannot be carried out; the message says why."""


def one_line(text: object) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in str(text or "")).split())


def parse(data: bytes) -> EmailMessage:
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


class PlainText(HTMLParser):
    """The text of an HTML message; what links point to is shown, because their text may lie."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style", "head")
        if tag in ("p", "br", "div", "tr", "li", "h1", "h2", "h3"):
            self.parts.append("\n")
        link = dict(attrs).get("href")
        if tag == "a" and link:
            self.parts.append(f"<{link}> ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in ("script", "style", "head")))

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def text_of(message: EmailMessage) -> str:
    body = message.get_body(preferencelist=("plain", "html"))
    if body is None:
        return "(no text)"
    try:
        content = str(body.get_content())
    except (LookupError, ValueError):
        payload = body.get_payload(decode=True)
        content = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""
    if body.get_content_type() == "text/html":
        page = PlainText()
        page.feed(content)
        content = re.sub(r"\n\s*\n+", "\n\n", "".join(page.parts))
    text = "".join(char for char in content.strip() if char.isprintable() or char in "\n\t")
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n({len(text):,} characters in all)"


def safe_name(name: str | None, number: int) -> str:
    plain = re.sub(r"[^\w. -]", "_", Path(name or "").name).strip(". ")[:100]
    return plain or f"attachment-{number}"


def save_new(folder: Path, name: str, data: bytes) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 1000):
        path = folder / (name if number == 1 else f"{Path(name).stem}-{number}{Path(name).suffix}")
        try:
            with path.open("xb") as file:
                file.write(data)
            return str(path)
        except FileExistsError:
            continue
        except OSError as failure:
            raise MailError(f"cannot write {path}: {failure}") from failure
    raise MailError(f"{folder} contains too many files called {name}")
