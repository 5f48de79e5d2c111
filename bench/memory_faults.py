"""Whether an index survives processes that are killed while they write it."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import anyio
from tests.memory.kills import compare_with_new, kill_while_indexing

from bench.measure import Sheet

KILLS = 200
NOTES = 150


def run(*, full: bool) -> None:
    sheet = Sheet("memory_faults")
    kills = KILLS if full else KILLS // 10
    with tempfile.TemporaryDirectory() as folder:
        workspace, database = Path(folder) / "workspace", Path(folder) / "index.sqlite"
        interrupted = kill_while_indexing(workspace, database, kills, notes=NOTES, dice=random.Random("kills"))
        anyio.run(compare_with_new, workspace, database)
    note = f"{interrupted} in the middle of their work; the ranking afterwards is that of a new index"
    sheet.row("kill -9 while indexing", kills, "kills", note)
    sheet.save()
