"""An IMAP and an SMTP server on this machine, with as much of the protocols as the mail skill needs."""

from __future__ import annotations

import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

FOLDERS = (("\\HasNoChildren", "INBOX"), ("\\HasNoChildren \\Drafts", "Entw&APw-rfe"), ("\\HasNoChildren", "Archive"))


@dataclass
class MailServer:
    """What the account contains, and what the servers were told."""

    messages: dict[int, bytes] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    told: list[str] = field(default_factory=list)
    appended: dict[str, bytes] = field(default_factory=dict)
    moved: dict[int, str] = field(default_factory=dict)
    sent: list[tuple[list[str], bytes]] = field(default_factory=list)
    imap_port: int = 0
    smtp_port: int = 0


def _answer_imap(server: MailServer, handler: socketserver.StreamRequestHandler) -> None:
    write = handler.wfile.write
    write(b"* OK [CAPABILITY IMAP4rev1 MOVE] ready\r\n")
    while line := handler.rfile.readline().decode("utf-8", "replace").strip():
        tag, _, rest = line.partition(" ")
        server.told.append(rest)
        verb = rest.partition(" ")[0].upper()
        reply = "OK done"
        if verb == "CAPABILITY":
            write(b"* CAPABILITY IMAP4rev1 MOVE\r\n")
        elif verb == "LOGIN":
            reply = "OK hello" if '"secret"' in rest else "NO [AUTHENTICATIONFAILED] wrong password"
        elif verb == "LIST":
            for flags, name in FOLDERS:
                write(f'* LIST ({flags}) "/" "{name}"\r\n'.encode())
        elif verb in ("SELECT", "EXAMINE"):
            if any(f'"{name}"' in rest or rest.endswith(f" {name}") for _, name in FOLDERS):
                write(f"* {len(server.messages)} EXISTS\r\n".encode())
            else:
                reply = "NO no such folder"
        elif verb == "APPEND":
            size = int(re.search(r"\{(\d+)\}$", rest)[1])  # type: ignore[index]
            write(b"+ go on\r\n")
            server.appended[rest.split('"')[1]] = handler.rfile.read(size)
            handler.rfile.readline()
        elif verb == "UID":
            _answer_uid(server, rest, write)
        elif verb == "LOGOUT":
            write(f"* BYE\r\n{tag} OK bye\r\n".encode())
            return
        write(f"{tag} {reply}\r\n".encode())


def _answer_uid(server: MailServer, rest: str, write: object) -> None:
    assert callable(write)
    _, verb, numbers, *more = rest.split(" ")
    if verb == "SEARCH":
        found = [number for number in server.messages if "UNSEEN" not in rest or number not in server.seen]
        write(f"* SEARCH {' '.join(map(str, found))}\r\n".encode())
    elif verb == "FETCH":
        for position, number in enumerate(int(each) for each in numbers.split(",")):
            if number in server.messages:
                data = server.messages[number]
                part = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if "HEADER" in rest else data
                write(f"* {position + 1} FETCH (UID {number} BODY[] {{{len(part)}}}\r\n".encode() + part + b")\r\n")
    elif verb == "STORE":
        (server.seen.add if more[0] == "+FLAGS" else server.seen.discard)(int(numbers))
    elif verb == "MOVE":
        server.moved[int(numbers)] = more[0].strip('"')


def _answer_smtp(server: MailServer, handler: socketserver.StreamRequestHandler) -> None:
    write = handler.wfile.write
    write(b"220 ready\r\n")
    recipients: list[str] = []
    while line := handler.rfile.readline().decode().strip():
        verb = line[:4].upper()
        if verb == "RCPT":
            recipients.append(line.partition("<")[2].rstrip(">"))
            write(b"250 ok\r\n")
        elif verb == "DATA":
            write(b"354 go on\r\n")
            data = b""
            while (row := handler.rfile.readline()) not in (b".\r\n", b""):
                data += row
            server.sent.append((recipients, data))
            write(b"250 taken\r\n")
        elif verb == "QUIT":
            write(b"221 bye\r\n")
            return
        else:
            write(b"250 ok\r\n")


@contextmanager
def run_mail_server() -> Iterator[MailServer]:
    """Run both servers on free ports of this machine."""
    state = MailServer()

    class Imap(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            _answer_imap(state, self)

    class Smtp(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            _answer_smtp(state, self)

    with (
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Imap) as imap,
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Smtp) as smtp,
    ):
        state.imap_port, state.smtp_port = imap.server_address[1], smtp.server_address[1]
        threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in (imap, smtp)]
        for thread in threads:
            thread.start()
        yield state
        for server in (imap, smtp):
            server.shutdown()
        for thread in threads:
            thread.join()
