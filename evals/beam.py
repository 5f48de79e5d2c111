"""Recall on chats in the shape of BEAM: `python -m evals.beam --data PATH [--json]`.

The data is a list of chats with `batches` (each a number and `messages` of `id`, `role`, `date` and `text`) and
`questions` (each an `ability`, a `question` and the `evidence`, ids of messages). Each batch becomes a note, each
message a block of lines that starts with `role: `. Evidence counts as shown if a hit overlaps the message. Questions
without evidence are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evals.measure import Block, Question
from evals.report import run_report


def write_notes(chat: Mapping[str, Any], workspace: Path) -> list[Question]:
    """Write a chat as notes and return its questions."""
    blocks: dict[int, Block] = {}
    notes = workspace / "memory"
    notes.mkdir(parents=True, exist_ok=True)
    for batch in chat["batches"]:
        lines = [f"# Batch {batch['batch']}", ""]
        path = f"memory/batch-{batch['batch']}.md"
        for message in batch["messages"]:
            first = len(lines) + 1
            lines += f"{message['role']}: {message['text']}".split("\n")
            blocks[message["id"]] = Block(path, first, len(lines))
            lines.append("")
        text = "\n".join(lines) + "\n"
        target = workspace / path
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
    return [
        Question(asked["question"], tuple(blocks[message] for message in asked["evidence"]), asked["ability"])
        for asked in chat["questions"]
        if asked["evidence"]
    ]


if __name__ == "__main__":
    run_report("beam", "Recall of memory search on chats in the shape of BEAM.", write_notes)
