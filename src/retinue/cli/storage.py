"""`retinue storage`: the PostgreSQL database of a home and its tables."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retinue.storage.postgres.server import PostgresServer, SchemaStatus


@click.group(cls=Group)
def storage() -> None:
    """Without `storage.url` everything is kept in files of the home, which need no migration."""


@storage.command()
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show where data is kept, the version of its tables and the number of their rows."""
    with _open(invocation) as server:
        if server is None:
            invocation.show(
                {"driver": "sqlite", "schema": None, "pending": [], "counts": {}},
                "Everything is kept in files of the home. Set `storage.url` to use PostgreSQL.",
            )
            return
        _show(invocation, server, server.status())


@storage.command()
@pass_invocation
def migrate(invocation: Invocation) -> None:
    """Create the tables of this version, or change those of an earlier one. Data is kept; there is no way back."""
    from retinue.core.errors import UsageError

    with _open(invocation) as server:
        if server is None:
            raise UsageError(
                "There is nothing to migrate: `storage.url` is not set. "
                "Set it with `retinue config set storage.url ADDRESS` to use PostgreSQL."
            )
        _show(invocation, server, server.migrate())


@storage.command()
@click.option("--to", metavar="URL|files", required=True, help="A PostgreSQL address, or `files` to move back.")
@click.option("--verify", is_flag=True, help="Compare the copy with the source by counts and hashes.")
@pass_invocation
def move(invocation: Invocation, to: str, verify: bool) -> None:
    """Copy sessions and state to PostgreSQL, or back to files. The source is not changed.

    Repeat the command to continue an interrupted move. Afterwards set `storage.url`, or unset it.
    """
    from msgspec import to_builtins

    from retinue.core.errors import UsageError
    from retinue.runtime.importing.storage_move import FILES, move_storage

    if to != FILES and not to.startswith(("postgresql://", "postgres://")):
        raise UsageError("--to needs `files`, or an address such as postgresql://user@host:5432/retinue.")
    done = move_storage(invocation.load_home(), to, verify=verify)
    rows = sum(done.rows.values())
    lines = [f"Copied {done.sessions} sessions, {done.archives} archives and {rows} rows; {done.skipped} were there."]
    if done.verified:
        lines.append("The copy equals the source.")
    change = "config unset storage.url" if to == FILES else "config set storage.url ADDRESS"
    lines.append(f"Use it: retinue {change}")
    invocation.show(to_builtins(done), "\n".join(lines))


@contextmanager
def _open(invocation: Invocation) -> Iterator[PostgresServer | None]:
    from retinue.security.secrets import Secrets
    from retinue.storage.postgres import DEFAULT_TEAM, open_server

    home = invocation.load_home()
    url = home.config.storage.url
    if url is None:
        yield None
        return
    team = home.config.teams.team or DEFAULT_TEAM
    with open_server(Secrets(home.environment, home.redactor).resolve(url), team) as server:
        yield server


def _show(invocation: Invocation, server: PostgresServer, found: SchemaStatus) -> None:
    counts = server.count_rows()
    data = {"driver": "postgres", "schema": found.schema, "pending": list(found.pending), "counts": counts}
    lines = [f"PostgreSQL, schema {found.schema}."]
    if found.pending:
        lines.append(f"Missing migrations: {', '.join(found.pending)}. Run `retinue storage migrate`.")
    rows = [[name, str(count)] for name, count in counts.items()]
    invocation.show(data, "\n".join([*lines, *([table(rows, header=("table", "rows"))] if rows else [])]))
