"""`kill -9` of a gateway while its sub-agents work: every result is delivered exactly once or shown as interrupted."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
from tests.gateway.delegation import kill_while_delegating

from bench.measure import Sheet


def run(*, full: bool) -> None:
    sheet = Sheet("delegation")
    kills = 200 if full else 20
    with tempfile.TemporaryDirectory() as place:
        found = anyio.run(kill_while_delegating, Path(place), kills, 11)
    sheet.row("kill -9 while sub-agents run", kills, "times")
    sheet.row("sub-agents started", len(found.children), "children", "the newest 200 are counted")
    sheet.row("results lost, doubled or without an end", len(found.lost), "children")
    sheet.save()
