"""Runs inside the sandbox: hands every command to each shell and notes which programs it started.

Started as a script; needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

SHELLS = ("bash", "dash")
LOG = Path("/log")
LONGEST_SECONDS = 10.0


def run(shell: str, text: str, home: str) -> list[list[str]]:
    """The programs that one command started, with their arguments."""
    LOG.write_bytes(b"")
    flags = ("--noprofile", "--norc") if shell == "bash" else ()
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        pid = os.posix_spawn(
            f"/shells/{shell}",
            (shell, *flags, "-c", "--", text),
            {"PATH": "/usr/bin", "HOME": home, "LC_ALL": "C.UTF-8"},
            file_actions=[(os.POSIX_SPAWN_DUP2, nothing, stream) for stream in (0, 1, 2)],
            setpgroup=0,
        )
    finally:
        os.close(nothing)
    _wait(pid)
    records = LOG.read_bytes().decode(errors="surrogateescape").split("\0\\n\0")
    return [record.split("\0") for record in records if record]


def _wait(pid: int) -> None:
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
    signal.signal(signal.SIGALRM, lambda number, frame: os.killpg(pid, signal.SIGKILL))
    os.waitpid(pid, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)


def main(exchange: Path, home: str) -> None:
    texts: list[str] = json.loads((exchange / "texts.json").read_text())
    for shell in SHELLS:
        answers = [run(shell, text, home) for text in texts]
        (exchange / "answers" / f"{shell}.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
