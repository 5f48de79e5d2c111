#!/usr/bin/env python3
"""Search, read, draft, send and move mail over IMAP and SMTP."""

from __future__ import annotations

import argparse
import base64
import email
import email.policy
import imaplib
import json
import os
import re
import smtplib
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from email.message import EmailMessage
from email.utils import make_msgid, parseaddr
from pathlib import Path
from typing import Any

sys.dont_write_bytecode = True  # a skill's folder is known by its hash and must not change by being used

from messages import MailError, one_line, parse, safe_name, save_new, text_of  # noqa: E402

TIMEOUT_SECONDS = 30
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DRAFTS = ("drafts", "entwürfe", "brouillons", "borradores", "bozze")


def setting(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise MailError(f"{name} is not set; the user sets it in skills.entries.mail.env")
    return value


def place(name: str, default_port: int) -> tuple[str, int, bool]:
    """Return host and port of a server, and whether the connection is encrypted."""
    host, _, port = setting(name).partition(":")
    is_plain = os.environ.get("MAIL_SECURITY") == "none"
    if is_plain and host not in ("localhost", "127.0.0.1", "::1"):
        raise MailError("MAIL_SECURITY=none is possible only with a server on this machine")
    return host, int(port) if port.isdigit() else default_port, not is_plain


@contextmanager
def inbox() -> Iterator[imaplib.IMAP4]:
    host, port, encrypted = place("MAIL_IMAP", 993)
    try:
        if encrypted:
            box: imaplib.IMAP4 = imaplib.IMAP4_SSL(
                host, port, ssl_context=ssl.create_default_context(), timeout=TIMEOUT_SECONDS
            )
        else:
            box = imaplib.IMAP4(host, port, timeout=TIMEOUT_SECONDS)
    except (OSError, imaplib.IMAP4.error) as failure:
        raise MailError(f"cannot reach {host}: {failure}") from failure
    try:
        try:
            box.login(setting("MAIL_USER"), setting("MAIL_PASSWORD"))
        except imaplib.IMAP4.error as failure:
            raise MailError(f"{host} does not accept the account: {readable(failure)}") from failure
        yield box
    except (OSError, imaplib.IMAP4.error) as failure:
        raise MailError(f"{host}: {readable(failure)}") from failure
    finally:
        with suppress(OSError, imaplib.IMAP4.error):
            box.logout()


def readable(failure: BaseException) -> str:
    detail = failure.args[0] if failure.args else failure
    return detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)


def quoted(text: str) -> str:
    if re.search(r"[\r\n\0]", text):
        raise MailError("a line break is not possible here")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def encode_folder(name: str) -> str:
    """Names of folders are in a form of UTF-7."""
    return quoted(re.sub(r"[^\x20-\x25\x27-\x7e]+", encode_part, name))


def encode_part(found: re.Match[str]) -> str:
    if found[0] == "&":
        return "&-"
    return "&" + base64.b64encode(found[0].encode("utf-16-be")).decode().rstrip("=").replace("/", ",") + "-"


def decode_folder(name: str) -> str:
    def decode(found: re.Match[str]) -> str:
        if not found[1]:
            return "&"
        data = found[1].replace(",", "/")
        return base64.b64decode(data + "=" * (-len(data) % 4)).decode("utf-16-be", "replace")

    return re.sub(r"&([^-]*)-", decode, name)


def done(answer: tuple[str, list[Any]], what: str) -> list[Any]:
    status, data = answer
    if status != "OK":
        raise MailError(f"{what}: {readable(Exception(data[0] if data else status))}")
    return data


def list_folders(box: imaplib.IMAP4) -> list[tuple[str, str]]:
    """Return the flags and the name of each folder."""
    found = []
    for line in done(box.list(), "the folders cannot be listed"):
        match = re.match(rb'\(([^)]*)\) (?:"[^"]*"|NIL) (.+)', line if isinstance(line, bytes) else b"")
        if match:
            found.append(
                (match[1].decode("ascii", "replace"), decode_folder(match[2].decode("ascii", "replace").strip('"')))
            )
    return found


def folders(options: argparse.Namespace) -> Any:
    with inbox() as box:
        return [name for _, name in list_folders(box)]


def open_folder(box: imaplib.IMAP4, name: str, *, change: bool = False) -> None:
    done(box.select(encode_folder(name), readonly=not change), f"the folder {name!r} cannot be opened")


def fetch(box: imaplib.IMAP4, numbers: str, what: str) -> dict[int, bytes]:
    """Return a part of messages by their number (UID)."""
    found = {}
    for item in done(box.uid("FETCH", numbers, f"(UID {what})"), "the message cannot be read"):
        if isinstance(item, tuple):
            match = re.search(rb"UID (\d+)", item[0])
            if match:
                found[int(match[1])] = item[1]
    return found


def head(number: int, message: EmailMessage) -> dict[str, Any]:
    return {"number": number, **{name: one_line(message[name]) for name in ("date", "from", "to", "subject")}}


def search(options: argparse.Namespace) -> Any:
    criteria: list[str] = []
    for key, value in (("FROM", options.sender), ("SUBJECT", options.subject), ("TEXT", options.text)):
        criteria += [key, quoted(value)] if value else []
    if options.since:
        criteria += ["SINCE", f"{options.since.day}-{MONTHS[options.since.month - 1]}-{options.since.year}"]
    criteria += ["UNSEEN"] if options.unseen else []
    with inbox() as box:
        open_folder(box, options.folder)
        is_ascii = all(part.isascii() for part in criteria)
        given = criteria if is_ascii else ["CHARSET", "UTF-8", *(part.encode() for part in criteria)]  # type: ignore[list-item]
        found = done(box.uid("SEARCH", *(given or ["ALL"])), "the search failed")
        numbers = [int(number) for number in (found[0] or b"").split()]
        chosen = sorted(numbers, reverse=True)[: options.limit]
        if not chosen:
            return []
        heads = fetch(box, ",".join(map(str, chosen)), "BODY.PEEK[HEADER.FIELDS (DATE FROM TO SUBJECT)]")
    return [head(number, parse(heads[number])) for number in chosen if number in heads]


def load(box: imaplib.IMAP4, number: int) -> EmailMessage:
    found = fetch(box, str(number), "BODY.PEEK[]")
    if number not in found:
        raise MailError(f"there is no message {number} in this folder; `search` shows the numbers")
    return parse(found[number])


def read(options: argparse.Namespace) -> Any:
    with inbox() as box:
        open_folder(box, options.folder)
        message = load(box, options.number)
    files = []
    for number, part in enumerate(message.iter_attachments(), 1):
        data = part.get_payload(decode=True)
        content = data if isinstance(data, bytes) else b""
        name = safe_name(part.get_filename(), number)
        found = {"name": name, "type": part.get_content_type(), "bytes": len(content)}
        files.append(found | ({"file": save_new(options.save, name, content)} if options.save else {}))
    return {**head(options.number, message), "text": text_of(message), "attachments": files}


def compose(options: argparse.Namespace, original: EmailMessage | None) -> EmailMessage:
    message = EmailMessage()
    sender = os.environ.get("MAIL_FROM", "").strip() or setting("MAIL_USER")
    for name, value in (("From", sender), ("To", ", ".join(options.to)), ("Cc", ", ".join(options.cc))):
        if re.search(r"[\r\n]", value):
            raise MailError("an address must not contain a line break")
        if value:
            message[name] = value
    wrong = [each for each in (*options.to, *options.cc) if "@" not in parseaddr(each)[1]]
    if wrong or not options.to:
        raise MailError(f"{wrong[0]!r} is not an address" if wrong else "name at least one recipient with --to")
    subject = options.subject or (one_line(original["subject"]) if original is not None else "")
    if original is not None and not options.subject and not subject.lower().startswith("re:"):
        subject = f"Re: {subject}"
    message["Subject"] = one_line(subject)
    message["Message-ID"] = make_msgid(domain=parseaddr(sender)[1].rpartition("@")[2] or "localhost")
    message["Date"] = email.utils.localtime()
    if original is not None and original["message-id"]:
        identity = one_line(original["message-id"])
        message["In-Reply-To"] = identity
        message["References"] = f"{one_line(original['references'])} {identity}".strip()
    try:
        message.set_content(sys.stdin.read() if str(options.body) == "-" else options.body.read_text(encoding="utf-8"))
        for path in options.attach:
            message.add_attachment(
                path.read_bytes(), maintype="application", subtype="octet-stream", filename=path.name
            )
    except (OSError, UnicodeDecodeError) as failure:
        raise MailError(f"cannot read the text or an attachment: {failure}") from failure
    return message


def find_drafts(box: imaplib.IMAP4) -> str:
    known = list_folders(box)
    marked = [name for flags, name in known if "\\drafts" in flags.lower()]
    named = [name for _, name in known if name.rpartition("/")[2].rpartition(".")[2].lower() in DRAFTS]
    if not (marked or named):
        raise MailError("the account has no folder for drafts")
    return (marked or named)[0]


def draft(options: argparse.Namespace) -> Any:
    with inbox() as box:
        message = compose(options, original_of(box, options))
        folder = find_drafts(box)
        data = message.as_bytes(policy=email.policy.SMTP)
        done(
            box.append(encode_folder(folder), "(\\Draft)", imaplib.Time2Internaldate(time.time()), data),
            "the draft was refused",
        )
    return {"folder": folder, "to": options.to, "subject": str(message["Subject"])}


def original_of(box: imaplib.IMAP4, options: argparse.Namespace) -> EmailMessage | None:
    if options.reply_to is None:
        return None
    open_folder(box, options.folder)
    return load(box, options.reply_to)


def send(options: argparse.Namespace) -> Any:
    original = None
    if options.reply_to is not None:
        with inbox() as box:
            original = original_of(box, options)
    message = compose(options, original)
    host, port, encrypted = place("MAIL_SMTP", 465)
    try:
        if encrypted and port != 587:
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                host, port, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context()
            )
        else:
            server = smtplib.SMTP(host, port, timeout=TIMEOUT_SECONDS)
        with server:
            if encrypted and port == 587:
                server.starttls(context=ssl.create_default_context())
            if encrypted or server.has_extn("auth"):
                server.login(setting("MAIL_USER"), setting("MAIL_PASSWORD"))
            refused = server.send_message(message)
    except (OSError, smtplib.SMTPException) as failure:
        raise MailError(f"{host} did not take the message: {failure}") from failure
    return {"sent": True, "to": options.to, "subject": str(message["Subject"]), "refused": sorted(refused)}


def mark(options: argparse.Namespace) -> Any:
    with inbox() as box:
        open_folder(box, options.folder, change=True)
        load(box, options.number)
        sign = "+FLAGS" if options.seen else "-FLAGS"
        done(box.uid("STORE", str(options.number), sign, "(\\Seen)"), "the mark was refused")
    return {"number": options.number, "seen": options.seen}


def move(options: argparse.Namespace) -> Any:
    with inbox() as box:
        open_folder(box, options.folder, change=True)
        load(box, options.number)
        if "MOVE" not in box.capabilities:
            raise MailError("the server cannot move messages in one step; let the user do it")
        done(box.uid("MOVE", str(options.number), encode_folder(options.target)), "the message was not moved")
    return {"number": options.number, "folder": options.target}


def show(result: Any) -> str:
    if isinstance(result, list):
        rows = [
            each if isinstance(each, str) else f"{each['number']:>7}  {each['date']}  {each['from']}  {each['subject']}"
            for each in result
        ]
        return "\n".join(rows) or "No messages."
    text = result.pop("text", None)
    files = result.pop("attachments", [])
    lines = [
        f"{key}: {', '.join(value) if isinstance(value, list) else value}"
        for key, value in result.items()
        if value not in ("", [])
    ]
    lines += [
        f"attachment: {each['name']} ({each['type']}, {each['bytes']:,} bytes) {each.get('file', '')}".rstrip()
        for each in files
    ]
    return "\n".join(lines) + (f"\n\n{text}" if text is not None else "")


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--folder", default="INBOX")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("folders", parents=[shared], help="the folders").set_defaults(run=folders)
    finding = commands.add_parser("search", parents=[shared], help="messages, newest first")
    finding.add_argument("--from", dest="sender")
    finding.add_argument("--subject")
    finding.add_argument("--text")
    finding.add_argument("--since", type=date.fromisoformat)
    finding.add_argument("--unseen", action="store_true")
    finding.add_argument("--limit", type=int, default=20)
    finding.set_defaults(run=search)
    reading = commands.add_parser("read", parents=[shared], help="one message")
    reading.add_argument("number", type=int)
    reading.add_argument("--save", type=Path, metavar="DIR", help="store the attachments")
    reading.set_defaults(run=read)
    for name, run, text in (("draft", draft, "put a message into the drafts"), ("send", send, "send a message")):
        command = commands.add_parser(name, parents=[shared], help=text)
        command.add_argument("--to", action="append", default=[])
        command.add_argument("--cc", action="append", default=[])
        command.add_argument("--subject", default="")
        command.add_argument("--body", type=Path, required=True, help="file with the text; - reads standard input")
        command.add_argument("--attach", type=Path, action="append", default=[])
        command.add_argument("--reply-to", type=int, metavar="NUMBER")
        command.set_defaults(run=run)
    marking = commands.add_parser("mark", parents=[shared], help="mark as seen or not")
    marking.add_argument("number", type=int)
    marking.add_argument("--seen", action=argparse.BooleanOptionalAction, required=True)
    marking.set_defaults(run=mark)
    moving = commands.add_parser("move", parents=[shared], help="move a message")
    moving.add_argument("number", type=int)
    moving.add_argument("target")
    moving.set_defaults(run=move)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        result = options.run(options)
    except MailError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(result, ensure_ascii=False, indent=2) if options.json else show(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
