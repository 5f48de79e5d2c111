"""`retinue gateway token`, `pair` and `devices`: who may use the gateway."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Group, Invocation, pass_invocation, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retinue.gateway.auth.pairing import PairingRequest, PairingStore
    from retinue.gateway.auth.tokens import TokenRecord, TokenStore
    from retinue.storage.database import Database
    from retinue.storage.home import Home
    from retinue.wire.events import PairingRequested
    from retinue.wire.protocol import Scope

SCOPES = ("read", "write", "approve", "pair", "admin")

_SCOPES = click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    default=("read", "write"),
    show_default=True,
    help="What it allows; may be repeated.",
)


@click.group(cls=Group)
def token() -> None:
    """Make, list and revoke the tokens that let clients in."""


@token.command("create")
@click.option("--name", required=True, metavar="NAME", help="What the token is for, as lists show it.")
@_SCOPES
@click.option("--days", type=click.IntRange(1, 3_650), help="How long it is valid (default: until it is revoked).")
@pass_invocation
def create_token(invocation: Invocation, name: str, scopes: tuple[str, ...], days: int | None) -> None:
    """Make a token and print it; it cannot be shown again."""
    from datetime import timedelta

    _refuse_agents()
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
    """End the token WHICH (its id or name); who is connected with it is thrown out within a second."""
    with _book(invocation.home) as book:
        record = book.revoke(which)
    _audit(invocation, "gateway_token_revoked", record)
    invocation.show({"id": record.id, "revoked": True}, f"Revoked {record.id} ({record.name}).")


@click.command(cls=Command)
@_SCOPES
@pass_invocation
def pair(invocation: Invocation, scopes: tuple[str, ...]) -> None:
    """Print a code with which one device can get a token of its own, for ten minutes."""
    from retinue.gateway.auth.tokens import CODE_MINUTES

    _refuse_agents()
    code = make_pairing_code(invocation.home, scopes)
    invocation.show(
        {"code": code, "scopes": list(scopes), "minutes": CODE_MINUTES},
        f"{code}\nEnter it on the device within {CODE_MINUTES} minutes; it works once.",
    )


@click.group(cls=Group)
def devices() -> None:
    """Let devices in that ask for it, and end that again."""


@devices.command("list")
@pass_invocation
def list_devices(invocation: Invocation) -> None:
    """List devices that wait for an answer, and those that were let in."""
    with _book(invocation.home) as book, _requests(invocation.home) as requests:
        waiting = [_describe_request(request) for request in requests.waiting()]
        paired = [row for record in book.devices() if (row := _describe(record))["state"] == "valid"]

    def text() -> str:
        asking = [(row["code"], row["name"], row["platform"], row["address"], row["askedAt"][:16]) for row in waiting]
        known = [(row["id"], row["name"], " ".join(row["scopes"]), (row["usedAt"] or "never")[:16]) for row in paired]
        parts = []
        if asking:
            parts.append(table(asking, header=("code", "asks to be let in", "platform", "from", "since")))
        if known:
            parts.append(table(known, header=("id", "was let in", "scopes", "last used")))
        return "\n\n".join(parts) or "No device waits, and none was let in."

    invocation.show({"waiting": waiting, "paired": paired}, text)


@devices.command()
@click.argument("code")
@_SCOPES
@pass_invocation
def approve(invocation: Invocation, code: str, scopes: tuple[str, ...]) -> None:
    """Let in the device that shows CODE. Compare the code with the one on its screen; the name is only its own word."""
    _refuse_agents()
    with _requests(invocation.home) as requests:
        request = requests.approve(code, _parse_scopes(scopes))
    _audit_request(invocation, "gateway_device_approved", request, scopes=list(scopes))
    invocation.show(
        {**_describe_request(request), "scopes": list(scopes)},
        f"Let in: {request.name}, from {request.address}, with {', '.join(scopes)}.",
    )


@devices.command()
@click.argument("code")
@pass_invocation
def reject(invocation: Invocation, code: str) -> None:
    """Send the device that shows CODE away."""
    with _requests(invocation.home) as requests:
        request = requests.reject(code)
    _audit_request(invocation, "gateway_device_rejected", request)
    invocation.show(_describe_request(request), f"Sent away: {request.name}, from {request.address}.")


@devices.command("revoke")
@click.argument("which")
@pass_invocation
def revoke_device(invocation: Invocation, which: str) -> None:
    """End the token of the device WHICH (its id or name); it is thrown out within a second."""
    with _book(invocation.home) as book:
        record = book.revoke(which, kind="device")
    _audit(invocation, "gateway_token_revoked", record)
    invocation.show({"id": record.id, "revoked": True}, f"Revoked {record.id} ({record.name}).")


@devices.command()
@click.argument("url")
@click.option("--name", default="", metavar="NAME", help="What the owner reads (default: the name of this machine).")
@pass_invocation
def ask(invocation: Invocation, url: str, name: str) -> None:
    """Ask the gateway at URL to let this machine in, wait for its owner, and print the token that it gives."""
    import platform

    import anyio

    from retinue.client.pairing import request_token

    def tell(asked: PairingRequested) -> None:
        invocation.note(
            f"Code: {asked.code}\nWaiting for the owner: `retinue gateway devices approve {asked.code}` over there."
        )

    token = anyio.run(request_token, url, name or f"retinue on {platform.node() or 'a machine'}", tell)
    invocation.show({"token": token}, token)


def _refuse_agents() -> None:
    """A command that an agent runs gets no key to the gateway: whoever has one may approve what the agent asks."""
    from retinue.core.approval import IN_COMMAND
    from retinue.core.errors import UsageError
    from retinue.storage.presence import is_beneath

    if IN_COMMAND in os.environ or is_beneath(IN_COMMAND):
        raise UsageError("A command that an agent runs cannot let anybody in. Do it in a terminal.")


def make_pairing_code(home: Home, scopes: tuple[str, ...]) -> str:
    """A code for one device, in the spelling that is easy to type."""
    with _book(home) as book:
        code = book.create_code(_parse_scopes(scopes))
    return f"{code[:4]}-{code[4:]}"


def _parse_scopes(scopes: tuple[str, ...]) -> list[Scope]:
    from retinue.wire.protocol import Scope

    return [Scope(name) for name in scopes]


def _audit(invocation: Invocation, kind: str, record: TokenRecord) -> None:
    from retinue.runtime.foundation import lay_foundation

    details = {"id": record.id, "name": record.name, "scopes": list(record.scopes)}
    lay_foundation(invocation.home).audit.record(kind, "the owner at the terminal", details)


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
    from retinue.runtime.foundation import lay_foundation

    details = {"id": request.id, "name": request.name, "address": request.address, **more}
    lay_foundation(invocation.home).audit.record(kind, "the owner at the terminal", details)


@contextmanager
def _book(home: Home) -> Iterator[TokenStore]:
    """The tokens of a home, for the length of a block."""
    from retinue.core.clock import SystemClock
    from retinue.gateway.auth.tokens import TokenStore

    with _database(home) as database:
        yield TokenStore(database, SystemClock())


@contextmanager
def _requests(home: Home) -> Iterator[PairingStore]:
    """The devices that ask a home to be let in, for the length of a block."""
    from retinue.core.clock import SystemClock
    from retinue.gateway.auth.pairing import PairingStore
    from retinue.gateway.auth.tokens import TokenStore

    clock = SystemClock()
    with _database(home) as database:
        yield PairingStore(database, TokenStore(database, clock), clock)


@contextmanager
def _database(home: Home) -> Iterator[Database]:
    from retinue.storage.database import DATABASE_NAME, Database

    database = Database(home.path / DATABASE_NAME)
    try:
        yield database
    finally:
        database.close()
