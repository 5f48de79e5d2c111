"""A look into a database of ours that makes, migrates and repairs nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

PATIENCE_SECONDS = 0.5


def peek(path: Path, sql: str, values: Sequence[str | int] = ()) -> list[tuple[Any, ...]] | None:
    """The rows that a query gives; None where there is no such database or table, or it cannot be read."""
    if not path.is_file():
        return None
    try:
        base = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)
        try:
            return base.execute(sql, values).fetchall()
        finally:
            base.close()
    except sqlite3.Error:
        return None
