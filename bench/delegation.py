"""Sub-agents: `kill -9` of their gateway while they work, and many more of them than run at once.

Every result is delivered exactly once or shown as interrupted. `python -m bench.delegation KILLS` kills as often as
told.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import anyio
from tests.gateway.delegation import crowd_a_gateway, kill_while_delegating

from bench.measure import Sheet
from retinue.dispatch.subagents import ChildState

KILLS, SHORT_KILLS = 200, 10
PLACES = 8
CROWD = {"a": 20, "b": 20, "c": 18}
"""How many sub-agents each of three parents starts at once: eight run, fifty wait."""


def run(*, full: bool) -> None:
    sheet = Sheet("delegation")
    measure_crowd(sheet)
    measure_kills(sheet, KILLS if full else SHORT_KILLS)
    sheet.save()


def measure_crowd(sheet: Sheet) -> None:
    with tempfile.TemporaryDirectory() as place:
        crowd = anyio.run(crowd_a_gateway, Path(place), CROWD)
    early = Counter(crowd.begun[PLACES : len(crowd.begun) // 2])
    spread = ", ".join(f"{name} {early[name]}" for name in CROWD)
    sheet.row("sub-agents asked for by three parents", len(crowd.found.children), "children")
    sheet.row("at work at one time", crowd.most_at_once, "at most", f"{PLACES} places")
    sheet.row(f"fewest of one parent among the next {early.total()} to begin", min(early.values()), "began", spread)
    sheet.row("results lost, doubled or without an end", len(crowd.found.lost), "children")
    sheet.row("memory of the gateway before", crowd.before, "MB")
    sheet.row("memory it took on top at its peak", crowd.most - crowd.before, "MB")


def measure_kills(sheet: Sheet, kills: int) -> None:
    def tell(number: int) -> None:
        if number % 10 == 0:
            print(f"  … killed {number} of {kills} times", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as place:
        found = anyio.run(kill_while_delegating, Path(place), kills, 11, tell)
    interrupted = sum(child.state is ChildState.INTERRUPTED for child in found.children)
    sheet.row("kill -9 while sub-agents run", kills, "times")
    sheet.row("sub-agents started", len(found.children), "children", f"{interrupted} shown as interrupted")
    sheet.row("results lost, doubled or without an end", len(found.lost), "children")


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a gateway while its sub-agents work.")
    parser.add_argument("kills", type=int, nargs="?", default=SHORT_KILLS)
    measure_kills(Sheet("delegation"), parser.parse_args().kills)


if __name__ == "__main__":
    main()
