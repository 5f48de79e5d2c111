"""The process that runs grep: it searches files by a regular expression and can be killed.

Matching a regular expression can take exponential time and holds the interpreter lock, so it cannot be interrupted in
our own process. This file is therefore started as a script and imports only the standard library. Its input is a JSON
header line followed by files, each as a JSON line `[path, length]` and that many bytes. Its output is a JSON line with
the numbers of the files that matched, followed by the matching lines. It exits with `LIMIT_REACHED` if it stopped at
the limit, and with `BAD_PATTERN` and a reason as its output if the pattern is not valid.
"""

from __future__ import annotations

import json
import re
import sys
from typing import BinaryIO

LIMIT_REACHED = 3
BAD_PATTERN = 4
MAX_LINE_CHARS = 2_000
SHOWN_CHARS = 400


def search(text: str, path: str, pattern: re.Pattern[str], around: int, room: int) -> tuple[list[str], int]:
    """Return the lines to show for one file and the number of matches; stops after `room` matches."""
    lines = text.splitlines()
    hits: list[int] = []
    for number, line in enumerate(lines):
        if pattern.search(line[:MAX_LINE_CHARS]):
            hits.append(number)
            if len(hits) == room:
                break
    shown: list[str] = []
    matched = set(hits)
    last = -1
    for hit in hits:
        start = max(last + 1, hit - around)
        if around and last >= 0 and start > last + 1:
            shown.append("--")
        for number in range(start, min(len(lines), hit + around + 1)):
            mark = ":" if number in matched else "-"
            shown.append(f"{path}{mark}{number + 1}{mark}{_shorten(lines[number])}")
            last = number
    return shown, len(hits)


def _shorten(line: str) -> str:
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}…"


def main(incoming: BinaryIO, outgoing: BinaryIO) -> int:
    """Search files until the input ends or the limit is reached."""
    header = json.loads(incoming.readline())
    try:
        pattern = re.compile(header["pattern"], re.IGNORECASE if header["ignoreCase"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        outgoing.write(str(error).encode("utf-8", "replace"))
        return BAD_PATTERN
    room = header["limit"]
    found: list[str] = []
    files: list[int] = []
    number = 0
    while room > 0 and (line := incoming.readline()):
        path, length = json.loads(line)
        shown, count = search(incoming.read(length).decode("utf-8", "replace"), path, pattern, header["context"], room)
        found += shown
        files += [number] if count else []
        room -= count
        number += 1
    incoming.close()  # the writing process gets a broken pipe and stops
    outgoing.write("\n".join([json.dumps(files), *found]).encode("utf-8", "replace"))
    outgoing.flush()
    return 0 if room > 0 else LIMIT_REACHED


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout.buffer))
