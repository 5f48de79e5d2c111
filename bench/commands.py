"""The command checker: its cost, how much of every day it can read, and whether real shells ever start more.

The fuzzing is the long version of `tests/tools/test_dialects.py`; a program that was not reported is an error.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

from tests.tools.dialects import HOME, available, compare, make_workspace, opened
from tests.tools.everyday import read_everyday, share_analysable
from tests.tools.generator import generate

from bench.measure import Sheet, median_ms
from retinue.tools.shell.allowlist import ArgvPattern, CommandRules
from retinue.tools.shell.analysis import CommandLocation, OpenFolderListing
from retinue.tools.shell.decision import decide_command_line

COMMANDS, SHORT_COMMANDS = 1_000_000, 100_000
LEAST_SHARE = 0.7
MOST_MS = 1.0

_PATTERNS = tuple(ArgvPattern.parse(f"tool{number} run *") for number in range(200))


def run(*, full: bool) -> None:
    sheet = Sheet("commands")
    with tempfile.TemporaryDirectory() as place:
        _cost(Path(place), sheet)
        _everyday(Path(place), sheet)
        _fuzz(Path(place), COMMANDS if full else SHORT_COMMANDS, sheet)
    sheet.save()


def _cost(place: Path, sheet: Sheet) -> None:
    rules = CommandRules(patterns=_PATTERNS)
    with opened(make_workspace(place)) as folder:
        where = CommandLocation(HOME, OpenFolderListing(folder))
        for text in ("git diff --stat HEAD~1 | head -n 5", "wc -l *.txt sub/*/ && make test", "tool199 run x"):
            cost = median_ms(partial(decide_command_line, text, rules, where))
            if cost > MOST_MS:
                raise AssertionError(f"judging `{text}` takes {cost:.2f} ms")
            sheet.row(f"judging `{text}`", cost, "ms", f"{len(_PATTERNS)} patterns on the allowlist")
    began = time.perf_counter()
    decide_command_line("x " * 500_000, rules)
    sheet.row("refusing a command of 1 MB", (time.perf_counter() - began) * 1000, "ms")


def _everyday(place: Path, sheet: Sheet) -> None:
    commands = read_everyday()
    share = share_analysable(commands, place)
    if share <= LEAST_SHARE:
        raise AssertionError(f"only {share:.0%} of everyday commands can be read")
    sheet.row("everyday commands that need no asking because of syntax", share * 100, "%", f"of {len(commands)}")


def _fuzz(place: Path, count: int, sheet: Sheet) -> None:
    missing = available()
    if missing is not None:
        raise AssertionError(f"{missing} is not installed; run scripts/system-packages.sh")
    found = compare(generate(count, "bench"), place)
    if found.differences:
        raise AssertionError("\n".join(map(repr, found.differences[:20])))
    note = f"{found.allowed:,} allowed and run; 0 programs started that were not reported"
    sheet.row("commands compared with bash and dash", found.generated, "commands", note)
