"""Recall on dialogues in the shape of LoCoMo: `python -m evals.locomo --data PATH [--json]`.

The data is a list of conversations with `sessions` (each an id, a `date_time` and `turns` of `dia_id`, `speaker` and
`text`) and `questions` (each a `question` and the `evidence`, ids of turns). Each session becomes a note with one turn
a line. Evidence counts as shown if its line stands whole in a hit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evals.measure import Line, Question
from evals.report import run_report

_KINDS = {"1": "several_facts", "2": "time", "3": "open_ended", "4": "single_fact"}


def write_notes(conversation: Mapping[str, Any], workspace: Path) -> list[Question]:
    """Write a conversation as notes and return its questions."""
    return list(read_questions(conversation, write_turns(conversation, workspace)))


def write_turns(conversation: Mapping[str, Any], workspace: Path) -> dict[str, Line]:
    """Write a conversation as notes; return the line of each turn by its id."""
    lines: dict[str, Line] = {}
    notes = workspace / "memory"
    notes.mkdir(parents=True, exist_ok=True)
    for session in conversation["sessions"]:
        written = [f"# Conversation at {session['date_time']}", ""]
        name = f"{session['id']}.md"
        for turn in session["turns"]:
            caption = f" [shares {turn['image_caption']}]" if turn.get("image_caption") else ""
            said = " ".join(f"{turn['speaker']}: {turn['text']}{caption}".split())
            written.append(said)
            lines[turn["dia_id"]] = Line(f"memory/{name}", len(written), said)
        text = "\n".join(written) + "\n"
        target = notes / name
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
    return lines


def read_questions(conversation: Mapping[str, Any], lines: Mapping[str, Line]) -> Iterator[Question]:
    for entry in conversation["questions"]:
        evidence = tuple(lines[turn] for turn in entry["evidence"] if turn in lines)
        if evidence:
            kind = str(entry.get("category", ""))
            yield Question(entry["question"], evidence, _KINDS.get(kind, kind))


if __name__ == "__main__":
    run_report("locomo", "Recall of memory search on dialogues in the shape of LoCoMo.", write_notes)
