"""Recall on dialogues in the shape of LoCoMo: `python -m evals.locomo --data PATH`.

The data is a list of conversations with `sessions` (each an id, a `date_time` and `turns` of `dia_id`, `speaker` and
`text`) and `questions` (each a `question` and the `evidence`, ids of turns). Each session becomes a note with one turn
a line. A question counts as answered where a line of its evidence stands whole in what a search shows.
"""

# ruff: noqa: T201 -- what it prints is what it is for

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from evals.measure import SCALES, Line, Question, Scale, ask, build_index
from retinue.memory.index import MemoryIndex
from retinue.memory.search.rules import SearchRules, SearchWeights

CONFIGURATIONS: Mapping[str, SearchRules] = {
    "text only": SearchRules(weights=SearchWeights.of(0, 1)),
    "vectors only": SearchRules(weights=SearchWeights.of(1, 0)),
    "hybrid": SearchRules(),
}


def write_notes(conversation: Mapping[str, Any], folder: Path, prefix: str = "") -> dict[str, Line]:
    """Write a conversation as notes; the line of each turn by its id."""
    lines: dict[str, Line] = {}
    notes = folder / "memory"
    notes.mkdir(parents=True, exist_ok=True)
    for session in conversation["sessions"]:
        text = [f"# Conversation at {session['date_time']}", ""]
        name = f"{prefix}{session['id']}.md"
        for turn in session["turns"]:
            caption = f" [shares {turn['image_caption']}]" if turn.get("image_caption") else ""
            said = " ".join(f"{turn['speaker']}: {turn['text']}{caption}".split())
            text.append(said)
            lines[turn["dia_id"]] = Line(f"memory/{name}", len(text), said)
        (notes / name).write_text("\n".join(text) + "\n", encoding="utf-8")
    return lines


def read_questions(conversation: Mapping[str, Any], lines: Mapping[str, Line]) -> Iterator[Question]:
    for entry in conversation["questions"]:
        evidence = tuple(lines[turn] for turn in entry["evidence"] if turn in lines)
        if evidence:
            yield Question(entry["question"], evidence, str(entry.get("category", "")))


async def measure(
    asked: Sequence[tuple[MemoryIndex, Sequence[Question]]], rules: SearchRules, scale: Scale
) -> tuple[float, float]:
    """In how many of a hundred questions some, and all, of the evidence was shown."""
    found = [await ask(index, question, rules, scale) for index, questions in asked for question in questions]
    return 100 * sum(map(any, found)) / len(found), 100 * sum(map(all, found)) / len(found)


async def run(data: Path, names: Sequence[str]) -> None:
    conversations = json.loads(data.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        apart: list[tuple[MemoryIndex, list[Question]]] = []
        pooled_questions: list[Question] = []
        for number, conversation in enumerate(conversations):
            home = base / f"apart-{number}"
            questions = list(read_questions(conversation, write_notes(conversation, home)))
            apart.append((await build_index(home, home / "index.sqlite"), questions))
            lines = write_notes(conversation, base / "pooled", f"{number}-")
            pooled_questions += read_questions(conversation, lines)
        pooled = [(await build_index(base / "pooled", base / "pooled.sqlite"), pooled_questions)]
        print(f"{len(pooled_questions)} questions, {len(conversations)} conversations")
        for title, asked in (("one index per conversation", apart), ("all pooled", pooled)):
            print(f"\n{title}")
            print(f"  {'':<14}" + "".join(f"{scale.name:>20}" for scale in SCALES) + f"{'all@6 chunks':>20}")
            for name in names:
                results = [await measure(asked, CONFIGURATIONS[name], scale) for scale in SCALES]
                cells = [some for some, _ in results] + [results[0][1]]
                print(f"  {name:<14}" + "".join(f"{cell:>20.1f}" for cell in cells))
            for index, _ in asked:
                await index.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description="Recall of memory search on dialogues in the shape of LoCoMo.")
    parser.add_argument("--data", type=Path, required=True, help="the JSON file")
    parser.add_argument("--only", choices=tuple(CONFIGURATIONS), help="one configuration")
    options = parser.parse_args()
    anyio.run(run, options.data, [options.only] if options.only else list(CONFIGURATIONS))


if __name__ == "__main__":
    main()
