"""The folders of sandboxes on disk, each with a stamp that stores its agent and last use."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct

from retinue.core.keys import SessionKey
from retinue.sandbox.confinement import Access, Confinement
from retinue.sandbox.settings import PruneSettings
from retinue.storage.files.private import make_private_dir, write_atomic

STAMP = "sandbox.json"
_IN_USE = timedelta(hours=1)


class StoredSandbox(Struct, frozen=True):
    """A sandbox on disk."""

    name: str
    path: Path
    agent: str
    session: str
    made: datetime
    used: datetime

    @property
    def size(self) -> int:
        """Return the total size of its files in bytes."""
        total = 0
        for folder, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):
                    total += os.lstat(Path(folder, name)).st_size
        return total


def prepare(confinement: Confinement, session: SessionKey, now: datetime) -> None:
    """Create a sandbox's missing folders, and record that it is used now."""
    folders = [confinement.temporary, confinement.shared_memory, confinement.user_home]
    if confinement.access is Access.NONE:
        folders.append(confinement.folder)
    for folder in folders:
        make_private_dir(folder)
    stamp = confinement.own / STAMP
    if not stamp.exists():
        facts = {"name": confinement.name, "agent": session.agent, "session": str(session), "made": now.isoformat()}
        write_atomic(stamp, json.dumps(facts).encode() + b"\n", synced=False)
    os.utime(stamp, (now.timestamp(), now.timestamp()))


def list_stored(folder: Path) -> list[StoredSandbox]:
    """Return the sandboxes in a folder, sorted by name."""
    found = [_read(path) for path in sorted(folder.glob(f"*/{STAMP}"))]
    return [kept for kept in found if kept is not None]


def _read(stamp: Path) -> StoredSandbox | None:
    try:
        used = datetime.fromtimestamp(stamp.lstat().st_mtime, UTC)
        facts = json.loads(stamp.read_text("utf-8"))
        made = datetime.fromisoformat(facts["made"])
        return StoredSandbox(stamp.parent.name, stamp.parent, str(facts["agent"]), str(facts["session"]), made, used)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def prune_reason(kept: StoredSandbox, settings: PruneSettings, now: datetime) -> str | None:
    """Return why a sandbox should be removed; None if it is kept."""
    idle, age = now - kept.used, now - kept.made
    if settings.idle_hours and idle >= timedelta(hours=settings.idle_hours):
        return f"not used for {settings.idle_hours} hours"
    if settings.max_age_days and age >= timedelta(days=settings.max_age_days) and idle >= _IN_USE:
        return f"older than {settings.max_age_days} days"
    return None


def remove(kept: StoredSandbox) -> bool:
    """Remove a sandbox with its content; return False if a command is running in it."""
    with suppress(FileNotFoundError):
        descriptor = os.open(kept.path / STAMP, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(kept.path, ignore_errors=True)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
    return not kept.path.exists()
