"""Kill an action with SIGKILL at any of the moments at which it changes files."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

KILLS = int(os.environ.get("RETINUE_KILLS", "20"))
"""How many seeded moments each test tries; the long benchmarks try 200."""

CHANGES = frozenset(
    {
        "open",
        "os.rename",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.chmod",
        "os.symlink",
        "os.link",
        "os.utime",
        "os.truncate",
        "sqlite3.connect",
        "subprocess.Popen",
        "ctypes.dlsym",
    }
)
"""Events of the interpreter that come before a file is created, opened, renamed or removed."""


def count_steps(action: Callable[[], object]) -> int:
    """Run an action in a child process to its end; return how many moments it has."""
    reader, writer = os.pipe()
    steps = 0

    def count(event: str, _arguments: tuple[object, ...]) -> None:
        nonlocal steps
        steps += event in CHANGES

    def run() -> None:
        sys.addaudithook(count)
        action()
        os.write(writer, str(steps).encode())

    status = _in_child(run)
    os.close(writer)
    with os.fdopen(reader) as told:
        text = told.read()
    assert status == 0, f"the action failed: {status}"
    return int(text)


def kill_at(action: Callable[[], object], step: int) -> bool:
    """Run an action in a child process and kill it at a moment; return whether it was killed."""
    left = step

    def kill(event: str, _arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in CHANGES:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def run() -> None:
        sys.addaudithook(kill)
        action()

    status = _in_child(run)
    assert status in (0, -signal.SIGKILL), f"the action failed: {status}"
    return status != 0


def _in_child(run: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
