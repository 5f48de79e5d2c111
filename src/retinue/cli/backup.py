"""`retinue backup`: make, list, verify, restore and prune backups of a home."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from retinue.storage.backup.repository import Repository

F = TypeVar("F", bound="Callable[..., Any]")


@click.group(cls=Group)
def backup() -> None:
    pass


def _which_repository(command: F) -> F:
    for option in (
        click.option(
            "--passphrase-file",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="File with the passphrase of encrypted backups (default: RETINUE_BACKUP_PASSPHRASE).",
        ),
        click.option(
            "--repository",
            "folder",
            metavar="DIR",
            type=click.Path(path_type=Path),
            help="Folder with the backups (default: backup.folder, else next to the home).",
        ),
    ):
        command = option(command)
    return command


def _open(invocation: Invocation, folder: Path | None, passphrase_file: Path | None) -> Repository:
    from retinue.core.errors import UsageError
    from retinue.runtime.automation.backups import open_repository

    passphrase = None
    if passphrase_file is not None:
        try:
            passphrase = passphrase_file.expanduser().read_text("utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise UsageError(f"The passphrase cannot be read from {passphrase_file}: {error}.") from error
        invocation.keep_quiet(passphrase)
    return open_repository(invocation.load_home(), folder, passphrase)


@backup.command()
@click.option("--agent", metavar="ID", help="Back up only this agent: sessions, workspace, jobs and credentials.")
@_which_repository
@pass_invocation
def create(invocation: Invocation, agent: str | None, folder: Path | None, passphrase_file: Path | None) -> None:
    """Back up the home; a running gateway need not be stopped.

    Only what changed since the last backup is stored. Locks, logs, sandboxes, downloaded models, checkpoints and the
    memory index, which is built again, are left out. With a passphrase, new repositories are encrypted.
    """
    from datetime import UTC, datetime

    from retinue.runtime.home import load_home
    from retinue.storage.backup.create import create_backup

    repository = _open(invocation, folder, passphrase_file)
    home, scope = load_home(invocation.home), None
    if agent is not None:
        from retinue.runtime.automation.agent_copies import scope_of_agent

        scope = scope_of_agent(home, home.agent_id(agent))
    if home.config.storage.url is not None:
        invocation.note(
            "Sessions, jobs and other state are in PostgreSQL (`storage.url`) and not in this backup. Back up the "
            "database with pg_dump."
        )
    with repository.locked(exclusive=True):
        done = create_backup(invocation.home.path, repository, datetime.now(UTC), scope)
    data = {
        "id": done.id,
        "repository": str(repository.path),
        "agent": done.manifest.agent or None,
        "encrypted": repository.is_encrypted,
        "files": len(done.manifest.files),
        "bytes": done.manifest.size,
        "newObjects": done.new_objects,
        "newBytes": done.new_bytes,
        "leftOut": [{"path": each.path, "why": each.why} for each in done.manifest.left_out],
    }
    invocation.show(
        data,
        f"Backup {done.id}: {data['files']} files, {data['bytes']} bytes, {done.new_bytes} of them new, "
        f"in {repository.path}.",
    )


def _describe_backup(row: dict[str, Any]) -> tuple[str, ...]:
    if "problem" in row:
        return row["id"], row["problem"]
    return (
        row["id"],
        f"agent {row['agent']}" if row["agent"] else "all",
        f"{row['files']} files",
        f"{row['bytes']} bytes",
    )


@backup.command("list")
@_which_repository
@pass_invocation
def list_backups(invocation: Invocation, folder: Path | None, passphrase_file: Path | None) -> None:
    """List the backups, the oldest first."""
    from retinue.core.errors import StorageError

    repository = _open(invocation, folder, passphrase_file)
    rows: list[dict[str, Any]] = []
    for name in repository.ids():
        try:
            manifest = repository.manifest(name)
        except StorageError as error:
            rows.append({"id": name, "problem": str(error)})
            continue
        rows.append(
            {
                "id": name,
                "createdAt": manifest.created_at.isoformat(),
                "home": manifest.home,
                "agent": manifest.agent or None,
                "files": len(manifest.files),
                "bytes": manifest.size,
            }
        )
    invocation.show(
        {"repository": str(repository.path), "backups": rows},
        lambda: (
            table([_describe_backup(row) for row in rows])
            or f"There are no backups in {repository.path}. Make one with `retinue backup create`."
        ),
    )


@backup.command()
@click.argument("name", metavar="[ID]", required=False)
@_which_repository
@pass_invocation
def verify(invocation: Invocation, name: str | None, folder: Path | None, passphrase_file: Path | None) -> int:
    """Read everything in one backup, or in all of them, and compare it with its hashes.

    The exit code is 1 if something is damaged or missing.
    """
    repository = _open(invocation, folder, passphrase_file)
    with repository.locked(exclusive=False):
        names = (repository.resolve(name),) if name else repository.ids()
        faults = repository.verify(names)
    data = {
        "checked": list(names),
        "faults": [{"id": each.snapshot, "path": each.path, "problem": each.problem} for each in faults],
    }
    lines = [f"{each.snapshot}  {each.path}: {each.problem}" for each in faults]
    invocation.show(data, "\n".join(lines) or f"No faults in {len(names)} backups.")
    return 1 if faults else 0


@backup.command()
@click.argument("name", metavar="ID")
@click.option("--to", "target", metavar="DIR", type=click.Path(path_type=Path), help="A new folder for the home.")
@click.option("--in-place", is_flag=True, help="Replace the home; the old one is moved aside. Stop the gateway first.")
@click.option("--agent", metavar="ID", help="Restore only this agent into the present home, with --as.")
@click.option("--as", "new_name", metavar="NAME", help="The new name of that agent.")
@_which_repository
@pass_invocation
def restore(
    invocation: Invocation,
    name: str,
    target: Path | None,
    in_place: bool,
    agent: str | None,
    new_name: str | None,
    folder: Path | None,
    passphrase_file: Path | None,
) -> None:
    """Restore a backup; ID is an id, the beginning of one, or `latest`.

    The files are checked while they are written, and the home appears complete or not at all.
    """
    from retinue.core.errors import UsageError
    from retinue.storage.backup.restore import restore_in_place, restore_new

    if sum((in_place, target is not None, agent is not None)) != 1:
        raise UsageError("Use one of --to DIR for a new home, --in-place to replace the home, --agent ID --as NAME.")
    if (agent is None) != (new_name is None):
        raise UsageError("--agent ID and --as NAME belong together: the restored agent needs a new name.")
    repository = _open(invocation, folder, passphrase_file)
    if agent is not None and new_name is not None:
        _restore_agent(invocation, repository, name, agent, new_name)
        return
    with repository.locked(exclusive=False):
        chosen = repository.resolve(name)
        only = repository.manifest(chosen).agent
        if only:
            raise UsageError(f"This backup has only the agent '{only}'. Restore it with --agent {only} --as NAME.")
        if target is not None:
            done = restore_new(repository, chosen, target.expanduser().absolute())
        else:
            done = restore_in_place(repository, chosen, invocation.home.path)
    aside = f" The old home is now {done.moved_aside}." if done.moved_aside else ""
    invocation.show(
        {
            "id": chosen,
            "home": str(done.home),
            "files": done.files,
            "movedAside": str(done.moved_aside) if done.moved_aside else None,
        },
        f"Restored {done.files} files to {done.home}.{aside} `retinue doctor --home {done.home}` checks it.",
    )


def _restore_agent(invocation: Invocation, repository: Repository, name: str, agent: str, new_name: str) -> None:
    from retinue.runtime.automation.agent_copies import restore_agent

    with repository.locked(exclusive=False):
        done = restore_agent(repository, repository.resolve(name), invocation.load_home(), agent, new_name)
    invocation.show(
        {"agent": done.agent, "workspace": str(done.workspace), "sessions": done.sessions, "jobs": done.jobs},
        f"Restored the agent '{agent}' as '{done.agent}': {done.sessions} sessions, {done.jobs} jobs (paused), "
        f"workspace {done.workspace}.",
    )


@backup.command()
@click.option("--keep", metavar="N", type=click.IntRange(min=1), default=7, help="Backups to keep (default: 7).")
@_which_repository
@pass_invocation
def prune(invocation: Invocation, keep: int, folder: Path | None, passphrase_file: Path | None) -> None:
    """Remove all but the newest backups, and content that no backup uses.

    Backups of single agents count apart: N of the whole home and N of each agent are kept.
    """
    repository = _open(invocation, folder, passphrase_file)
    with repository.locked(exclusive=True):
        removed, freed = repository.prune(keep)
    invocation.show(
        {"removed": list(removed), "freedBytes": freed}, f"Removed {len(removed)} backups and freed {freed} bytes."
    )
