"""`retinue teams`: organisations and teams of a PostgreSQL database, and the secrets of the home's team."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, parse_since, pass_invocation, read_piped, table
from retinue.cli.team_access import open_database, open_team
from retinue.cli.terminal import is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retinue.runtime.home import Home
    from retinue.teams.database import TeamRecord
    from retinue.teams.sealing import TeamSecretStore


@click.group(cls=Group)
def teams() -> None:
    """Teams share a database, which keeps them apart. `teams.team` names the team that a home serves."""


@teams.command("list")
@pass_invocation
def list_teams(invocation: Invocation) -> None:
    """List all teams of the database."""
    from retinue.teams.database import TeamRegistry

    home = invocation.load_home()
    with open_database(home) as server:
        server.check_schema()
        found = [_describe(team, home) for team in TeamRegistry(server, home.clock).list()]
    rows = [(row["id"], row["name"], row["organisation"], "this home" if row["served"] else "") for row in found]
    header = ("id", "name", "organisation", "")
    invocation.show(found, lambda: table(rows, header=header) if rows else "There are no teams yet.")


@teams.command()
@click.argument("team")
@click.option("--name", metavar="NAME", help="Name shown to people (default: TEAM).")
@click.option("--organisation", metavar="ID", help="Organisation of the team (default: TEAM).")
@click.option("--organisation-name", metavar="NAME", help="Name of a new organisation (default: its id).")
@pass_invocation
def create(
    invocation: Invocation, team: str, name: str | None, organisation: str | None, organisation_name: str | None
) -> None:
    """Create the team TEAM: lower-case letters, digits and '-'."""
    from retinue.cli.gateway_access import refuse_agents
    from retinue.storage.auditlog import CLI
    from retinue.teams.database import TeamRegistry
    from retinue.teams.settings import check_team_id

    refuse_agents("create teams")
    owner = organisation or team
    for each in (team, owner):
        _check_id(check_team_id, each)
    home = invocation.load_home()
    with open_database(home) as server:
        server.check_schema()
        made = TeamRegistry(server, home.clock).create(team, name or team, owner, organisation_name or owner)
    home.audit.record("team_created", CLI, {"team": made.id, "organisation": made.organisation})
    served = home.config.teams.team == made.id
    hint = "" if served else f" Serve it with this home: retinue config set teams.team {made.id}"
    invocation.show(_describe(made, home), f"Created the team {made.id}.{hint}")


@teams.group()
def secrets() -> None:
    """Store secrets of the team in the database, encrypted with `teams.encryptionKey`."""


@secrets.command("list")
@pass_invocation
def list_secrets(invocation: Invocation) -> None:
    """List the names of the secrets. Values are never printed."""
    with _secrets(invocation) as (store, _):
        found = [
            {"name": each.name, "changedBy": each.changed_by, "changedAt": each.changed_at.isoformat()}
            for each in store.list()
        ]
    rows = [(row["name"], row["changedBy"], row["changedAt"][:16]) for row in found]
    invocation.show(
        found, lambda: table(rows, header=("name", "changed by", "changed")) if rows else "There are no secrets yet."
    )


@secrets.command("set")
@click.argument("name")
@pass_invocation
def set_secret(invocation: Invocation, name: str) -> None:
    """Store the secret NAME. It is read from standard input, or asked for in a terminal."""
    from retinue.storage.auditlog import CLI

    value = read_hidden("Value", invocation)
    with _secrets(invocation) as (store, home):
        store.set(name, value, CLI)
        home.audit.record("team_secret_set", CLI, {"team": home.config.teams.team, "name": name})
    invocation.show({"name": name, "stored": True}, f"Stored {name}.")


@secrets.command("remove")
@click.argument("name")
@pass_invocation
def remove_secret(invocation: Invocation, name: str) -> None:
    """Remove the secret NAME."""
    from retinue.storage.auditlog import CLI

    with _secrets(invocation) as (store, home):
        store.remove(name)
        home.audit.record("team_secret_removed", CLI, {"team": home.config.teams.team, "name": name})
    invocation.show({"name": name, "removed": True}, f"Removed {name}.")


@secrets.command()
@pass_invocation
def rotate(invocation: Invocation) -> None:
    """Encrypt all secrets with the present key. Afterwards, keys in `teams.oldEncryptionKeys` can be removed."""
    from retinue.storage.auditlog import CLI

    with _secrets(invocation) as (store, home):
        count = store.rotate()
        home.audit.record("team_secrets_rotated", CLI, {"team": home.config.teams.team, "count": count})
    invocation.show({"rotated": count}, f"Encrypted {count} secrets again.")


@teams.command("log")
@click.option("--kind", metavar="KIND", help="Only entries of this kind.")
@click.option("--search", metavar="TEXT", help="Only entries with this text.")
@click.option("--since", metavar="WHEN", help="Only entries after a date or time, or newer than an age such as 12h.")
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, help="Maximum number of entries.")
@click.option(
    "--verify", is_flag=True, help="Verify that no entry was changed or removed; the exit code is 1 if one was."
)
@click.option(
    "--export", metavar="FILE", type=click.Path(path_type=Path), help="Write all entries: JSON lines, or .csv."
)
@pass_invocation
def show_log(
    invocation: Invocation,
    kind: str | None,
    search: str | None,
    since: str | None,
    limit: int,
    verify: bool,
    export: Path | None,
) -> int:
    """Print the audit log of the team: sign-ins, changes, approvals and tool calls of all its homes."""
    from retinue.cli.team_log import export_team_log, show_team_log, verify_team_log

    if verify:
        return verify_team_log(invocation)
    home = invocation.load_home()
    after = parse_since(since, home.clock.now()) if since else None
    if export is not None:
        export_team_log(home, invocation, export, kind, after)
    else:
        show_team_log(home, invocation, after, kind=kind, search=search, limit=limit)
    return 0


@contextmanager
def _secrets(invocation: Invocation) -> Iterator[tuple[TeamSecretStore, Home]]:
    from retinue.cli.gateway_access import refuse_agents
    from retinue.security.secrets import Secrets
    from retinue.teams import explained_imports

    refuse_agents("use the secrets of a team")
    home = invocation.load_home()
    with explained_imports():
        from retinue.teams.sealing import Seal, TeamSecretStore
    with open_team(home) as database:
        seal = Seal.of(database.team, home.config.teams, Secrets(home.environment, home.redactor))
        yield TeamSecretStore(database, seal), home


def read_hidden(prompt: str, invocation: Invocation) -> str:
    """Read a secret from standard input, or ask for it without showing it."""
    from retinue.core.errors import UsageError

    if sys.stdin is not None and is_terminal(sys.stdin):
        value = str(click.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True))
    else:
        value = read_piped().rstrip("\r\n")
    if not value:
        raise UsageError(f"{prompt} is missing. Write it to standard input.")
    invocation.keep_quiet(value)
    return value


def _check_id(check: Any, value: str) -> None:
    from retinue.core.errors import UsageError

    try:
        check(value)
    except ValueError as error:
        raise UsageError(f"'{value}' {error}.") from None


def _describe(team: TeamRecord, home: Home) -> dict[str, Any]:
    return {
        "id": team.id,
        "name": team.name,
        "organisation": team.organisation,
        "organisationName": team.organisation_name,
        "createdAt": team.created_at.isoformat(),
        "served": home.config.teams.team == team.id,
    }
