"""Chats in the shape of BEAM among generated ones: `python -m evals.haystack --data PATH --tokens 1000000 [--json]`.

One chat of the data for each million tokens is written as notes, and generated chats until there are so many tokens.
The generated ones are made of pairs of words that follow each other in the data, so they are about the same subjects.
Everything is indexed, then the questions about the real chats are asked, each step in a process of its own. CPU
seconds, milliseconds and megabytes are of that process alone.
"""

# ruff: noqa: T201 -- what it prints is what it is for

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec

from evals import beam
from evals.measure import Block, Question, build_index, is_shown, within
from evals.report import BUDGETS, summarise
from retinue.memory.search.rules import SearchRules

CHARS_PER_TOKEN = 4
TOKENS_PER_CHAT = 1_000_000
_TURNS = 60
_ANSWER_LINES = 12
_MAX_WORDS = 60


class Babble:
    """Generates lines in which each word follows the one before somewhere in the texts."""

    def __init__(self, texts: Iterable[str], dice: random.Random) -> None:
        self._dice = dice
        self._next: defaultdict[str, list[str]] = defaultdict(list)
        for text in texts:
            for line in filter(None, map(str.split, text.split("\n"))):
                for one, other in zip(["", *line], [*line, ""], strict=True):
                    self._next[one].append(other)

    def line(self) -> str:
        words: list[str] = []
        word = self._dice.choice(self._next[""])
        while word and len(words) < _MAX_WORDS:
            words.append(word)
            word = self._dice.choice(self._next[word])
        return " ".join(words)


def real_chats(
    chats: Sequence[Mapping[str, Any]], tokens: int
) -> Iterator[tuple[Mapping[str, str], Sequence[Question]]]:
    """Yield the notes of each real chat, by path, and the questions about it."""
    for number, chat in enumerate(chats[: max(1, tokens // TOKENS_PER_CHAT)]):
        folder = f"memory/chat-{number}/"
        with tempfile.TemporaryDirectory() as staged:
            asked = beam.write_notes(chat, Path(staged))
            notes = {folder + note.name: note.read_text("utf-8") for note in sorted(Path(staged, "memory").iterdir())}
        yield notes, [_moved(question, folder) for question in asked]


def write_haystack(chats: Sequence[Mapping[str, Any]], workspace: Path, tokens: int) -> None:
    """Write real and generated chats as notes."""
    written = 0
    for notes, _ in real_chats(chats, tokens):
        written += sum(_write(workspace / path, text) for path, text in notes.items())
    for number, text in enumerate(_generated(chats)):
        if written >= tokens * CHARS_PER_TOKEN:
            break
        written += _write(workspace / "memory" / f"generated-{number % 100}" / f"{number}.md", text)


def _write(path: Path, text: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return len(text)


def _moved(question: Question, folder: str) -> Question:
    evidence = tuple(
        Block(folder + block.path.removeprefix("memory/"), block.first, block.last)
        for block in question.evidence
        if isinstance(block, Block)
    )
    return Question(question.text, evidence, question.kind)


def _generated(chats: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    dice = random.Random(20_260_115)  # noqa: S311 -- the same every time, on purpose
    messages = [message for chat in chats for batch in chat["batches"] for message in batch["messages"]]
    asking = Babble((each["text"] for each in messages if each["role"] == "user"), dice)
    answering = Babble((each["text"] for each in messages if each["role"] != "user"), dice)
    while True:
        lines = ["# Chat", ""]
        for _ in range(_TURNS):
            lines += [f"user: {asking.line()}", ""]
            lines += [f"assistant: {answering.line()}", *(answering.line() for _ in range(_ANSWER_LINES)), ""]
        yield "\n".join(lines) + "\n"


async def _index(workspace: Path) -> dict[str, float]:
    began, used = time.perf_counter(), time.process_time()
    index = await build_index(workspace, workspace / "index.sqlite")
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    totals = (await index.status()).totals
    await index.aclose()
    size = (workspace / "index.sqlite").stat().st_size
    return {
        "chunks": totals.chunks,
        "seconds": round(seconds, 1),
        "cpuSeconds": round(cpu, 1),
        "memoryMb": _peak_mb(),
        "indexMb": round(size / 2**20, 1),
    }


async def _ask(workspace: Path, questions: Sequence[Question]) -> dict[str, Any]:
    index = await build_index(workspace, workspace / "index.sqlite")
    await index.search(questions[0].text)
    spent: list[float] = []
    shown: dict[str, list[tuple[str, list[bool]]]] = {budget.name: [] for budget in BUDGETS}
    for question in questions:
        for budget in BUDGETS:
            used = time.process_time()
            found = await index.search(
                question.text, rules=msgspec.structs.replace(SearchRules(), limits=budget.limits)
            )
            spent.append(time.process_time() - used)
            hits = within(found.hits, budget.tokens)
            shown[budget.name].append((question.kind, [is_shown(each, hits) for each in question.evidence]))
    await index.aclose()
    rows = [row for name, flags in shown.items() for row in summarise("haystack", name, flags)]
    return {"cpuMsPerSearch": round(1000 * statistics.median(spent), 2), "memoryMb": _peak_mb(), "rows": rows}


def _peak_mb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def _in_process(step: str, data: Path, tokens: int, folder: Path) -> dict[str, Any]:
    argv = [sys.executable, "-m", "evals.haystack", "--data", str(data), "--tokens", str(tokens)]
    done = subprocess.run([*argv, "--step", step, "--folder", str(folder)], stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Recall, time and memory of search in large notes.")
    parser.add_argument("--data", type=Path, required=True, help="the JSON file of chats")
    parser.add_argument("--tokens", type=int, default=TOKENS_PER_CHAT, help="the size of the notes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--step", choices=("index", "ask"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    chats = json.loads(options.data.read_text(encoding="utf-8"))
    if options.step:
        questions = [question for _, asked in real_chats(chats, options.tokens) for question in asked]
        work = _index(options.folder) if options.step == "index" else _ask(options.folder, questions)
        print(msgspec.json.encode(anyio.run(lambda: work)).decode())
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_haystack(chats, folder, options.tokens)
        indexed = _in_process("index", options.data, options.tokens, folder)
        asked = _in_process("ask", options.data, options.tokens, folder)
    if options.json:
        print(json.dumps({"tokens": options.tokens, "index": indexed, "ask": asked}, indent=1))
        return
    print(f"{options.tokens:,} tokens: " + ", ".join(f"{name} {value:,}" for name, value in indexed.items()))
    print(f"search: {asked['cpuMsPerSearch']} ms of CPU, {asked['memoryMb']} MB")
    for row in asked["rows"]:
        if row["kind"] == "all":
            print(f"{row['budget']:<12}{row['some']:>6} / {row['share']:>5}   of {row['questions']} questions")


if __name__ == "__main__":
    main()
