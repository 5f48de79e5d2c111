"""`make bench`: run the benchmarks named, or all of them."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time

from bench.measure import Sheet

BENCHES = (
    "labels",
    *("startup", "plugins", "prompt", "turn", "policy", "memory", "commands", "security", "gateway", "sandbox", "jobs"),
    *("delegation", "backup", "mcp_servers", "channels", "page"),
)
FULL: tuple[str, ...] = ("faults", "hijack", "memory_faults", "races", "openapi", "endurance")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure Retinue. Results go to bench/results/.")
    parser.add_argument("names", nargs="*", help=f"which of: {', '.join(BENCHES + FULL)}")
    parser.add_argument("--full", action="store_true", help="also the long fault, fuzz and scale runs")
    parser.add_argument("--json", action="store_true", help="print all rows as one JSON list; progress goes to stderr")
    options = parser.parse_args()
    Sheet.as_json = options.json
    progress = sys.stderr if options.json else sys.stdout
    try:
        for name in options.names or (BENCHES + (FULL if options.full else ())):
            began = time.perf_counter()
            print(f"\n{name}", file=progress)
            importlib.import_module(f"bench.{name}").run(full=options.full)
            print(f"  ({time.perf_counter() - began:.0f} s)", file=progress)
    finally:
        if options.json:
            print(json.dumps(Sheet.printed, indent=2))


if __name__ == "__main__":
    main()
