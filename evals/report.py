"""Measuring recall of a set of conversations: builds an index for each, asks its questions, and prints rows.

A row is `{set, kind, budget, some, share}`: for how many of a hundred questions of a kind some evidence was shown
within the budget, and which share of all evidence.
"""

# ruff: noqa: T201 -- what it prints is what it is for

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from msgspec import Struct

from evals.fitting import leave_one_out
from evals.measure import Question, Scale, ask, build_index
from retinue.memory.search.rules import SearchLimits, SearchRules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from retinue.memory.index import MemoryIndex

BUDGETS = (
    Scale("6chunks", SearchLimits(6, 0.0, 1_700, 1_000_000)),
    Scale("2400tokens", SearchLimits(6, 0.35, 1_600, 12_000), 2_400),
    Scale("4000chars", SearchLimits(6, 0.35, 700, 4_000)),
)
ALL_KINDS = "all"

WriteNotes = Callable[[Mapping[str, Any], Path], list[Question]]
"""Writes a conversation as notes into a workspace, and returns its questions."""


class ReportRow(Struct, frozen=True):
    """The recall of one kind of questions within one budget, in per cent."""

    set: str
    kind: str
    budget: str
    some: float
    share: float
    questions: int


def summarise(name: str, budget: str, found: Sequence[tuple[str, Sequence[bool]]]) -> Iterator[ReportRow]:
    """Yield a row for each kind of questions, and one for all of them."""
    kinds = sorted({kind for kind, _ in found})
    for kind in (*kinds, ALL_KINDS):
        shown = [flags for each, flags in found if kind in (each, ALL_KINDS)]
        some = 100 * sum(map(any, shown)) / len(shown)
        share = 100 * sum(sum(flags) / len(flags) for flags in shown) / len(shown)
        yield ReportRow(name, kind, budget, round(some, 1), round(share, 1), len(shown))


async def measure_set(
    name: str,
    conversations: Iterable[tuple[MemoryIndex, Sequence[Question]]],
    rules: Callable[[int], SearchRules],
    budgets: Sequence[Scale] = BUDGETS,
) -> list[ReportRow]:
    """Return the rows of a set; `rules` returns the rules for the conversation of a number."""
    found: dict[str, list[tuple[str, list[bool]]]] = {budget.name: [] for budget in budgets}
    for number, (index, questions) in enumerate(conversations):
        for question in questions:
            for budget in budgets:
                found[budget.name].append((question.kind, await ask(index, question, rules(number), budget)))
    return [row for budget, flags in found.items() for row in summarise(name, budget, flags)]


@asynccontextmanager
async def open_set(
    data: Path, write: WriteNotes, folder: Path
) -> AsyncIterator[list[tuple[MemoryIndex, list[Question]]]]:
    """Write the conversations of a file as notes and index each; indexes in `folder` are used again."""
    opened: list[tuple[MemoryIndex, list[Question]]] = []
    try:
        for number, conversation in enumerate(json.loads(data.read_text(encoding="utf-8"))):
            home = folder / f"{data.stem}-{number}"
            questions = write(conversation, home)
            opened.append((await build_index(home, home / "index.sqlite"), questions))
        yield opened
    finally:
        for index, _ in opened:
            await index.aclose()


def run_report(name: str, description: str, write: WriteNotes) -> None:
    """Run the command line of a set."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="the JSON file")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument(
        "--leave-one-out", action="store_true", help="choose the weights for each conversation on the others"
    )
    parser.add_argument("--cache", type=Path, help="a folder that keeps the indexes for the next run")
    options = parser.parse_args()
    kept = nullcontext(str(options.cache)) if options.cache else tempfile.TemporaryDirectory()
    with kept as folder:
        rows = anyio.run(_measure, name, options.data, write, Path(folder), options.leave_one_out)
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(rows), indent=1).decode())
        return
    print(f"{'kind':<28}{'questions':>9}" + "".join(f"{budget.name:>18}" for budget in BUDGETS) + "   (some / share)")
    for kind in dict.fromkeys(row.kind for row in rows):
        cells = [row for row in rows if row.kind == kind]
        print(
            f"{kind:<28}{cells[0].questions:>9}" + "".join(f"{cell.some:>10.1f} /{cell.share:>6.1f}" for cell in cells)
        )


async def _measure(name: str, data: Path, write: WriteNotes, folder: Path, fit: bool) -> list[ReportRow]:  # noqa: FBT001
    async with open_set(data, write, folder) as conversations:
        if not fit:
            return await measure_set(name, conversations, lambda _: SearchRules())
        whole, _, tight = BUDGETS
        chosen = await leave_one_out(conversations, whole, tight, lambda line: print(line, file=sys.stderr))
        return await measure_set(name, conversations, chosen.__getitem__)
