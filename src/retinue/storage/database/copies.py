"""Verified copies of a database, from which unreadable rows are restored after damage.

There are at most two: `<name>.copy-1` is the newer one.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct

from retinue.storage.database.database_file import DatabaseDamaged, sqlite_errors_explained
from retinue.storage.files.descriptors import CREATE, PRIVATE_FILE
from retinue.storage.files.errors import explained

COPY_INTERVAL = timedelta(hours=1)
_GENERATIONS = (1, 2)
_PAGES_PER_STEP = 256


class DatabaseCopy(Struct, frozen=True):
    """The content of a verified copy, and when it was made."""

    content: bytes
    made_at: datetime


def is_copy_due(path: Path, now: datetime) -> bool:
    """Return whether the database changed since its last copy, and that copy is an hour old."""
    copied_at = _changed_at(_copy_name(path, 1))
    changed_at = max(filter(None, map(_changed_at, (path, path.with_name(f"{path.name}-wal")))), default=None)
    if changed_at is None or copied_at is None:
        return changed_at is not None
    return changed_at > copied_at and now - copied_at >= COPY_INTERVAL


def make_copy(path: Path, now: datetime) -> None:
    """Copy a database that may be in use, and check the copy; raise `DatabaseDamaged` if it is damaged."""
    beside = path.with_name(f"{path.name}.copy.new")
    with explained(beside.name, path.parent):
        beside.unlink(missing_ok=True)
        os.close(os.open(beside, CREATE, PRIVATE_FILE))
    try:
        with (
            sqlite_errors_explained(path),
            closing(sqlite3.connect(path)) as source,
            closing(sqlite3.connect(beside)) as target,
        ):
            source.backup(target, pages=_PAGES_PER_STEP)
            target.execute("PRAGMA journal_mode = DELETE")
            verdict = target.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise DatabaseDamaged(f"'{path.name}' is damaged: {' '.join(str(verdict).split())}.")
        with explained(beside.name, path.parent):
            os.utime(beside, (now.timestamp(), now.timestamp()))
            first, second = (_copy_name(path, number) for number in _GENERATIONS)
            with suppress(FileNotFoundError):
                first.rename(second)
            beside.rename(first)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def read_copy(path: Path) -> DatabaseCopy | None:
    """Return the newest copy of a database that passes its check; None if there is none."""
    for number in _GENERATIONS:
        file = _copy_name(path, number)
        made_at = _changed_at(file)
        with suppress(OSError, sqlite3.Error):
            content = file.read_bytes()
            with closing(sqlite3.connect(":memory:")) as base:
                base.deserialize(content)
                if made_at is not None and base.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                    return DatabaseCopy(content, made_at)
    return None


def _copy_name(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.copy-{number}")


def _changed_at(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None
