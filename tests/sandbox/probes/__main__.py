"""Makes attempts, each in a process of its own, and prints a line for each: its name and what came of it."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from tests.sandbox.probes.attempts import Facts
from tests.sandbox.probes.catalogue import PROBES


def main() -> None:
    place, *names = sys.argv[1:]
    facts = json.loads(Path(place).read_text())
    for name in names:
        os.write(1, f"{name}\t".encode())
        _attempt_apart(name, facts)


def _attempt_apart(name: str, facts: Facts) -> None:
    """An attempt may not live to say what it achieved. It has no other descriptors than those of a program."""
    child = _fork()
    if child == 0:
        os.write(1, f"{_attempt(name, facts)}\n".encode(errors="replace"))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        os.write(1, f"killed by {os.WTERMSIG(status)}\n".encode())


def _fork() -> int:
    """The limit of processes may count those of other tests of the same user, which end soon."""
    for _ in range(600):
        try:
            return os.fork()
        except BlockingIOError:
            time.sleep(0.1)
    raise OSError("no process could be started")


def _attempt(name: str, facts: Facts) -> str:
    try:
        achieved = PROBES[name](facts)
    except Exception as error:  # noqa: BLE001 - an attempt that fails in whatever way has failed
        return f"held: {type(error).__name__}: {error}"
    return f"ESCAPED: {achieved}" if achieved else "held"


if __name__ == "__main__":
    main()
