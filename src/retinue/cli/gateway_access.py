"""`retinue gateway token`, `pair` and `devices`: access to the gateway."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Group, Invocation, pass_invocation, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retinue.gateway.auth.pairing import PairingRequest, PairingStore
    from retinue.gateway.auth.tokens import TokenRecord, TokenStore
    from retinue.runtime.home import Home
    from retinue.storage.database import Database
    from retinue.storage.home_paths import HomePaths
    from retinue.wire.frames import PairingRequested
    from retinue.wire.protocol import Scope

SCOPES = ("read", "write", "approve", "pair", "admin")

_SCOPES = click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    default=("read", "write"),
    show_default=True,
    help="Scope to grant; may be repeated.",
)


@click.group(cls=Group)
def token() -> None:
    """Create, list and revoke access tokens."""


@token.command("create")
@click.option("--name", required=True, metavar="NAME", help="Name shown in lists.")
@_SCOPES
@click.option("--days", type=click.IntRange(1, 3_650), help="Lifetime (default: until revoked).")
@pass_invocation
def create_token(invocation: Invocation, name: str, scopes: tuple[str, ...], days: int | None) -> None:
    """Create a token and print it. It cannot be shown again."""
    from datetime import timedelta

    refuse_agents()
    with _book(invocation.home) as book:
        lifetime = timedelta(days=days) if days else None
        record, text = book.create(name, _parse_scopes(scopes), lifetime=lifetime)
    _audit(invocation, "gateway_token_created", record)
    invocation.show({**_describe(record), "token": text}, text)


@token.command("list")
@pass_invocation
def list_tokens(invocation: Invocation) -> None:
    """List tokens and paired devices."""
    with _book(invocation.home) as book:
        rows = [_describe(record) for record in book.list()]
    header = ("id", "name", "kind", "scopes", "created", "last used", "state")
    cells = [
        (
            row["id"],
            row["name"],
            row["kind"],
            " ".join(row["scopes"]),
            row["createdAt"][:16],
            (row["usedAt"] or "never")[:16],
            row["state"],
        )
        for row in rows
    ]
    invocation.show(rows, lambda: table(cells, header=header) if cells else "There are no tokens yet.")


@token.command("revoke")
@click.argument("which")
@pass_invocation
def revoke_token(invocation: Invocation, which: str) -> None:
    """Revoke the token WHICH (id or name). Its connections are closed within a second."""
    with _book(invocation.home) as book:
        record = book.revoke(which)
    _audit(invocation, "gateway_token_revoked", record)
    invocation.show({"id": record.id, "revoked": True}, f"Revoked {record.id} ({record.name}).")


@click.command(cls=Command)
@_SCOPES
@pass_invocation
def pair(invocation: Invocation, scopes: tuple[str, ...]) -> None:
    """Print a pairing code that lets one device get its own token, and a QR code for a phone. Valid for ten minutes."""
    from datetime import datetime, timedelta

    from retinue.gateway.auth.tokens import CODE_MINUTES, pairing_link

    refuse_agents()
    home = invocation.load_home()
    here, elsewhere = _addresses(home)
    code = make_pairing_code(invocation.home, scopes)
    expires = datetime.now().astimezone() + timedelta(minutes=CODE_MINUTES)
    link = pairing_link(elsewhere, code) if elsewhere else None
    data = {"code": code, "scopes": list(scopes), "minutes": CODE_MINUTES, "expiresAt": expires.isoformat()}
    data |= {"address": elsewhere or here, "link": link}

    def text() -> str:
        rows = [
            ("code", code),
            ("address", elsewhere or here or "the gateway does not run. Start it: retinue gateway start"),
            ("allows", ", ".join(scopes)),
            ("expires", f"{expires:%H:%M}, in {CODE_MINUTES} minutes; it can be used once"),
        ]
        if link is None:
            hint = (
                "Only this machine can open that address. For a phone: retinue config set gateway.bind lan, then again."
            )
            return f"{table(rows)}\n{hint if here else ''}".rstrip()
        how = "Scan it with the phone's camera, or open the address on the device and enter the code."
        return f"{table(rows)}\n\n{draw_qr_code(link)}\n{how}"

    invocation.show(data, text, exact=True)


def _addresses(home: Home) -> tuple[str | None, str | None]:
    """Return the page's address on this machine and for other devices; None where there is none."""
    from retinue.gateway.auth.request_source import address_for_others
    from retinue.storage.process_locks import find_instance

    instance = find_instance(home.paths)
    if instance is None or not instance.url:
        return None, None
    settings = home.config.gateway
    path = f"{settings.control_ui.base_path.rstrip('/')}/"
    elsewhere = address_for_others(settings, instance.url)
    return f"{instance.url}{path}", f"{elsewhere}{path}" if elsewhere else None


def draw_qr_code(text: str) -> str:
    """Return a QR code in half blocks, two rows of it in a line, for a dark terminal."""
    import segno

    matrix = [[bool(cell) for cell in row] for row in segno.make(text, error="l").matrix_iter(border=2)]
    if len(matrix) % 2:
        matrix.append([False] * len(matrix[0]))
    blocks = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}
    pairs = zip(matrix[::2], matrix[1::2], strict=True)
    return "\n".join("".join(blocks[cell] for cell in zip(*rows, strict=True)) for rows in pairs)


@click.group(cls=Group)
def devices() -> None:
    """Approve or revoke device access."""


@devices.command("list")
@pass_invocation
def list_devices(invocation: Invocation) -> None:
    """List pending pairing requests and paired devices."""
    with _book(invocation.home) as book, _requests(invocation.home) as requests:
        waiting = [_describe_request(request) for request in requests.waiting()]
        paired = [row for record in book.devices() if (row := _describe(record))["state"] == "valid"]

    def text() -> str:
        asking = [(row["code"], row["name"], row["platform"], row["address"], row["askedAt"][:16]) for row in waiting]
        known = [(row["id"], row["name"], " ".join(row["scopes"]), (row["usedAt"] or "never")[:16]) for row in paired]
        parts = []
        if asking:
            parts.append(table(asking, header=("code", "pending", "platform", "from", "since")))
        if known:
            parts.append(table(known, header=("id", "paired", "scopes", "last used")))
        return "\n\n".join(parts) or "There are no pending requests and no paired devices."

    invocation.show({"waiting": waiting, "paired": paired}, text)


@devices.command()
@click.argument("code")
@_SCOPES
@pass_invocation
def approve(invocation: Invocation, code: str, scopes: tuple[str, ...]) -> None:
    """Approve the device that shows CODE. Compare the code with its screen: the device chose its own name."""
    refuse_agents()
    with _requests(invocation.home) as requests:
        request = requests.approve(code, _parse_scopes(scopes))
    _audit_request(invocation, "gateway_device_approved", request, scopes=list(scopes))
    invocation.show(
        {**_describe_request(request), "scopes": list(scopes)},
        f"Approved: {request.name}, from {request.address}, with {', '.join(scopes)}.",
    )


@devices.command()
@click.argument("code")
@pass_invocation
def reject(invocation: Invocation, code: str) -> None:
    """Reject the device that shows CODE."""
    with _requests(invocation.home) as requests:
        request = requests.reject(code)
    _audit_request(invocation, "gateway_device_rejected", request)
    invocation.show(_describe_request(request), f"Rejected: {request.name}, from {request.address}.")


@devices.command("revoke")
@click.argument("which")
@pass_invocation
def revoke_device(invocation: Invocation, which: str) -> None:
    """Revoke the token of the device WHICH (id or name). Its connections are closed within a second."""
    with _book(invocation.home) as book:
        record = book.revoke(which, kind="device")
    _audit(invocation, "gateway_token_revoked", record)
    invocation.show({"id": record.id, "revoked": True}, f"Revoked {record.id} ({record.name}).")


@devices.command()
@click.argument("url")
@click.option(
    "--name", default="", metavar="NAME", help="Device name shown to the owner (default: this machine's name)."
)
@pass_invocation
def ask(invocation: Invocation, url: str, name: str) -> None:
    """Request access to the gateway at URL, wait for approval, and print the token."""
    import platform

    import anyio

    from retinue.client.link import request_token

    def show_code(asked: PairingRequested) -> None:
        invocation.note(
            f"Code: {asked.code}\nWaiting for approval. Run there: `retinue gateway devices approve {asked.code}`"
        )

    token = anyio.run(request_token, url, name or f"retinue on {platform.node() or 'a machine'}", show_code)
    invocation.show({"token": token}, token)


def refuse_agents(what: str = "approve devices") -> None:
    """A command that an agent runs cannot get a gateway token: a token can approve the agent's own requests."""
    from retinue.core.approval import IN_COMMAND
    from retinue.core.errors import UsageError
    from retinue.storage.process_locks import has_ancestor_with_variable

    if IN_COMMAND in os.environ or has_ancestor_with_variable(IN_COMMAND):
        raise UsageError(f"A command that an agent runs cannot {what}. Run it in a terminal.")


def make_pairing_code(home: HomePaths, scopes: tuple[str, ...]) -> str:
    """Create a pairing code for one device and format it for typing."""
    with _book(home) as book:
        code = book.create_code(_parse_scopes(scopes))
    return f"{code[:4]}-{code[4:]}"


def _parse_scopes(scopes: tuple[str, ...]) -> list[Scope]:
    from retinue.wire.protocol import Scope

    return [Scope(name) for name in scopes]


def _audit(invocation: Invocation, kind: str, record: TokenRecord) -> None:
    from retinue.runtime.home import load_home

    details = {"id": record.id, "name": record.name, "scopes": list(record.scopes)}
    load_home(invocation.home).audit.record(kind, "the owner at the terminal", details)


def _describe(record: TokenRecord) -> dict[str, Any]:
    from datetime import UTC, datetime

    valid = record.is_valid(datetime.now(UTC))
    return {
        "id": record.id,
        "name": record.name,
        "kind": record.kind,
        "scopes": list(record.scopes),
        "createdAt": record.created_at.isoformat(),
        "expiresAt": record.expires_at.isoformat() if record.expires_at else None,
        "usedAt": record.used_at.isoformat() if record.used_at else None,
        "state": "valid" if valid else "revoked" if record.revoked_at else "expired",
    }


def _describe_request(request: PairingRequest) -> dict[str, Any]:
    from retinue.gateway.auth.pairing import format_code

    return {
        "id": request.id,
        "code": format_code(request.code),
        "name": request.name,
        "platform": request.platform,
        "address": request.address,
        "askedAt": request.asked_at.isoformat(),
        "expiresAt": request.expires_at.isoformat(),
    }


def _audit_request(invocation: Invocation, kind: str, request: PairingRequest, **more: object) -> None:
    from retinue.runtime.home import load_home

    details = {"id": request.id, "name": request.name, "address": request.address, **more}
    load_home(invocation.home).audit.record(kind, "the owner at the terminal", details)


@contextmanager
def _book(home: HomePaths) -> Iterator[TokenStore]:
    """Open the token store of a home for the duration of the block."""
    from retinue.core.clock import SystemClock
    from retinue.gateway.auth.tokens import TokenStore

    with _database(home) as database:
        yield TokenStore(database, SystemClock())


@contextmanager
def _requests(home: HomePaths) -> Iterator[PairingStore]:
    """Open the pairing requests of a home for the duration of the block."""
    from retinue.core.clock import SystemClock
    from retinue.gateway.auth.pairing import PairingStore
    from retinue.gateway.auth.tokens import TokenStore

    clock = SystemClock()
    with _database(home) as database:
        yield PairingStore(database, TokenStore(database, clock), clock)


@contextmanager
def _database(home: HomePaths) -> Iterator[Database]:
    """Open the state in which the gateway of a home looks tokens up: a file, or the database of `storage.url`."""
    from retinue.runtime.home import load_home

    with closing(load_home(home).open_state(newer="refuse")) as database:
        yield database
