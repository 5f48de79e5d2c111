"""Processes that are killed while they index, and whether what they leave behind is as good as new."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from retinue.memory.index import MemoryIndex
from retinue.memory.search.rules import with_limits
from tests.memory.worker import READY, open_index

QUESTIONS = ("harbour wall 17", "bread 3", "who repaired the boat", "XK-00021-A")


def start(job: str, workspace: Path, database: Path, amount: str = "0") -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tests.memory.worker", job, str(workspace), str(database), amount]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def write_notes(workspace: Path, count: int, lines: int = 30, tag: str = "") -> None:
    for n in range(count):
        text = "\n".join(f"Line {k} of the harbour wall {n} {tag}, bread {k % 5}, XK-{n:05}-A" for k in range(lines))
        file = workspace / "memory" / f"{n:04}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


def finish(process: subprocess.Popen[str]) -> str:
    """What a process said that must have succeeded."""
    out, err = read_rest(process)
    if process.returncode != 0:
        raise AssertionError(err)
    return out


def read_rest(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process says until it ends. Not `communicate`, which forgets what was read ahead with the first line."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stdout as out, process.stderr as err:
        return out.read(), err.read()


def kill_while_indexing(workspace: Path, database: Path, kills: int, *, notes: int, dice: random.Random) -> int:
    """Kill as many processes, each somewhere in its work, of which there is always new; how many died in the middle."""
    write_notes(workspace, notes)
    first = start("index", workspace, database)
    assert first.stdout is not None
    assert first.stdout.readline() == READY
    began = time.monotonic()
    finish(first)
    whole = time.monotonic() - began
    interrupted = 0
    for number in range(kills):
        write_notes(workspace, notes, tag=f"again {number}")
        victim = start("force" if number % 4 == 3 else "index", workspace, database)
        assert victim.stdout is not None
        assert victim.stdout.readline() == READY
        time.sleep(dice.uniform(0, whole * 0.9))
        victim.send_signal(signal.SIGKILL)
        out, _ = read_rest(victim)
        interrupted += not out.strip()
    return interrupted


async def compare_with_new(workspace: Path, database: Path) -> None:
    """Finish an index and raise where it answers otherwise than one that is made from nothing."""
    finish(start("index", workspace, database))
    fresh = database.with_name("fresh.sqlite")
    finish(start("index", workspace, fresh))
    ours, theirs = open_index(workspace, database), open_index(workspace, fresh)
    try:
        if await _ask(ours) != await _ask(theirs):
            raise AssertionError("the index that was interrupted ranks otherwise than a new one")
        if (await ours.status()).totals != (await theirs.status()).totals:
            raise AssertionError("the index that was interrupted does not hold the same")
    finally:
        await ours.aclose()
        await theirs.aclose()


async def _ask(index: MemoryIndex) -> list[object]:
    rules = with_limits(index.rules, max_results=20, min_score=0.0)
    answers = [(await index.search(question, rules=rules, refresh=False)).hits for question in QUESTIONS]
    if not all(answers):
        raise AssertionError("a question found nothing")
    return list(answers)
