"""Finds lines by a regular expression, in a process that can be killed.

A regular expression can take longer than anybody waits, and while one runs nothing else in its process does. So this
file is started as a script: it reads a JSON header line and then files, each as a JSON line `[path, length]` followed
by that many bytes. When it has read everything, or found enough and then exits with `FULL`, it prints the numbers of
the files with matches as a JSON line, and the lines found; for what is no regular expression it prints why.
"""

from __future__ import annotations

import json
import re
import sys
from typing import BinaryIO

FULL = 3
BAD_PATTERN = 4
LONGEST_LINE = 2_000
SHOWN_CHARS = 400


def search(text: str, path: str, pattern: re.Pattern[str], around: int, room: int) -> tuple[list[str], int]:
    """The lines to show for one file, and how many matched; looking ends after `room` matches."""
    lines = text.splitlines()
    hits: list[int] = []
    for number, line in enumerate(lines):
        if pattern.search(line[:LONGEST_LINE]):
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
    """Read files until there are no more, or enough was found."""
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
    incoming.close()  # whoever is still writing learns that it is enough
    outgoing.write("\n".join([json.dumps(files), *found]).encode("utf-8", "replace"))
    outgoing.flush()
    return 0 if room > 0 else FULL


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout.buffer))
