"""Makes one attempt."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.sandbox.probes.catalogue import PROBES


def main() -> None:
    name, place = sys.argv[1:]
    facts = json.loads(Path(place).read_text())
    try:
        achieved = PROBES[name](facts)
    except Exception as error:  # noqa: BLE001 - an attempt that fails in whatever way has failed
        print(f"held: {type(error).__name__}: {error}")
    else:
        print(f"ESCAPED: {achieved}" if achieved else "held")


if __name__ == "__main__":
    main()
