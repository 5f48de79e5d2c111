"""The backups of a home: where they are, how they are opened, and those that the gateway makes by itself."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from retinue.core.errors import RetinueError
from retinue.runtime.home import Home
from retinue.security.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import Callable

    from retinue.storage.backup.create import CreatedBackup
    from retinue.storage.backup.repository import Repository

log = logging.getLogger(__name__)

CHECK_SECONDS = 300.0
"""How often the gateway looks whether a backup is due."""


def open_repository(home: Home, folder: Path | None = None, passphrase: str | None = None) -> Repository:
    """Return the backups of a home: in the given folder, the configured one, or next to the home.

    The passphrase of encrypted ones is the given one, that of the environment, or the configured one.
    """
    from retinue.storage.backup.repository import PASSPHRASE_VARIABLE, Repository, default_repository

    settings = home.config.backup
    named = folder or (home.locate(settings.folder) if settings.folder else default_repository(home.paths.path))
    repository = Repository(named.expanduser().absolute())
    given = passphrase or home.inherited.get(PASSPHRASE_VARIABLE)
    if given is None and settings.passphrase is not None and (repository.is_encrypted or not repository.ids()):
        given = Secrets(home.environment, home.redactor).resolve(settings.passphrase)
    if given is not None:
        repository.unlock(given, create=True)
    return repository


def back_up_and_prune(home: Home) -> CreatedBackup:
    """Make a backup as configured, and remove the oldest ones."""
    from retinue.storage.backup.create import create_backup

    repository = open_repository(home)
    with repository.locked(exclusive=True):
        done = create_backup(home.paths.path, repository, home.clock.now())
        repository.prune(home.config.backup.keep)
    return done


def is_backup_due(home: Home) -> bool:
    """Return whether the configuration wants a backup now."""
    every = home.config.backup.every
    if not every:
        return False
    newest = max(open_repository(home).ids(), default=None)
    if newest is None:
        return True
    made = datetime.strptime(newest[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    now = home.clock.now()
    return now - made >= every or made > now


async def make_backups(current_home: Callable[[], Home]) -> None:
    """Make the backups that the configuration wants, until cancelled; a failure is logged and tried again."""
    while True:
        await anyio.sleep(CHECK_SECONDS)
        home = current_home()
        if not home.config.backup.every:
            continue
        try:
            if await anyio.to_thread.run_sync(partial(is_backup_due, home)):
                done = await anyio.to_thread.run_sync(partial(back_up_and_prune, home))
                log.info("backup %s: %d new bytes", done.id, done.new_bytes)
        except (RetinueError, OSError) as error:
            log.error("the backup failed: %s", error)
