"""Whether a tree is slower than another one: its benchmarks beside those of the other, in turns, in the same run.

    git worktree add --detach ../before COMMIT && make -C ../before setup
    python -m bench.compare ../before [NAME …] [--rounds N] [--json]

Each tree runs its own benchmarks with its own virtual environment. Rows of times, sizes and rates are compared if both
trees have them, by the best of some rounds: other work on the machine only makes a value worse. A row that is more than
5 % worse is marked. `startup` compares programs itself: `RETINUE=OLD:NEW python -m bench startup`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.__main__ import BENCHES

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = 1.05
COSTS = ("ms", "s", "s CPU", "MB", "KB", "×", "times")
RATES = ("turn/s",)

Rows = dict[tuple[str, str], float]


@dataclass(frozen=True)
class Comparison:
    """A row of both trees; `ratio` is above 1 if the newer one is worse."""

    bench: str
    what: str
    unit: str
    before: float
    after: float
    ratio: float

    def __str__(self) -> str:
        mark = "  <-- slower" if self.ratio > ALLOWED else ""
        values = f"{self.before:>11.3f} {self.after:>11.3f} {self.unit:<8}"
        return f"  {self.bench:<11} {self.what[:62]:<62} {values} {self.ratio:5.2f}{mark}"


def run_bench(tree: Path, name: str) -> Iterator[tuple[str, str, float]]:
    """Run a benchmark of a tree; yield its rows: name, unit and value."""
    environment = {key: value for key, value in os.environ.items() if key not in ("RETINUE", "PYTHONDONTWRITEBYTECODE")}
    results = tree / "bench" / "results" / f"{name}.json"
    kept = results.read_bytes() if results.exists() else None
    argv = [str(tree / ".venv" / "bin" / "python"), "-m", "bench", name]
    done = subprocess.run(argv, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    try:
        if done.returncode:
            raise SystemExit(f"{name} failed in {tree}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
        for row in json.loads(results.read_text()):
            if row["unit"] in (*COSTS, *RATES):
                yield row["what"], row["unit"], float(row["value"])
    finally:
        if kept is not None:
            results.write_bytes(kept)  # the committed results are those of a quiet machine


def compare(before: Path, after: Path, names: Sequence[str], rounds: int) -> list[Comparison]:
    """Run benchmarks of two trees in turns and compare the rows that both have."""
    found: Mapping[Path, Rows] = defaultdict(dict)
    units: dict[tuple[str, str], str] = {}
    for name in names:
        for number in range(rounds):
            for tree in (before, after):
                print(f"{name}, round {number + 1} of {rounds}: {tree.name}", file=sys.stderr, flush=True)
                for what, unit, value in run_bench(tree, name):
                    key = name, what
                    units[key] = unit
                    known = found[tree].get(key, value)
                    found[tree][key] = max(known, value) if unit in RATES else min(known, value)
    shared = [key for key in found[before] if key in found[after]]
    return [_compare_row(key, units[key], found[before][key], found[after][key]) for key in shared]


def _compare_row(key: tuple[str, str], unit: str, before: float, after: float) -> Comparison:
    worse, better = (before, after) if unit in RATES else (after, before)
    return Comparison(*key, unit, before, after, worse / better if better else 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the benchmarks of this tree with those of another one.")
    parser.add_argument("before", type=Path, help="the other tree, with its .venv")
    parser.add_argument("names", nargs="*", help=f"which of: {', '.join(BENCHES)} (default: all but startup)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each benchmark runs (default: 3)")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    names = options.names or [name for name in BENCHES if name != "startup"]
    rows = compare(options.before.resolve(), ROOT, names, options.rounds)
    if options.json:
        print(json.dumps([row.__dict__ for row in rows], indent=2))
        return
    print(f"  {'bench':<11} {'row':<62} {'before':>11} {'now':>11} {'':<8} ratio")
    for row in rows:
        print(row)
    slower = [row for row in rows if row.ratio > ALLOWED]
    print(f"{len(rows)} rows, {len(slower)} more than {ALLOWED - 1:.0%} slower")


if __name__ == "__main__":
    main()
