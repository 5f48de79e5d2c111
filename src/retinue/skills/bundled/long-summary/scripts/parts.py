#!/usr/bin/env python3
"""Cut a long text into parts, keep the summary of each, and join them."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class PartsError(Exception):
    """The request cannot be carried out; the message says why."""


def read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as failure:
        raise PartsError(f"cannot read {path} as text: {failure}") from failure


def weigh(lines: list[str], at: int) -> int:
    """How good a place is to cut before a line: at a heading, a page or a paragraph."""
    line = lines[at]
    if re.match(r"#{1,6} |--- page \d+ ---|(?:chapter|kapitel|part) \w+", line, re.IGNORECASE) or "\f" in line:
        return 3
    return 2 if not lines[at - 1].strip() and line.strip() else 1


def cut_lines(lines: list[str], size: int) -> list[tuple[int, int]]:
    """Return the first and last line of each part; a part ends at the best place in its last third."""
    parts, start = [], 0
    while start < len(lines):
        end, length = start, 0
        while end < len(lines) and (end == start or length + len(lines[end]) <= size):
            length += len(lines[end])
            end += 1
        if end < len(lines):
            low = start + max(1, (end - start) * 2 // 3)
            end = max(range(low, end + 1), key=lambda at: (weigh(lines, at), at))
        parts.append((start + 1, end))
        start = end
    return parts


def state_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.summary.json")


def digest(lines: list[str]) -> str:
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def load(path: Path) -> tuple[dict[str, Any], list[str]]:
    lines = read_lines(path)
    try:
        state = json.loads(state_file(path).read_text(encoding="utf-8"))
        for part in state["parts"]:
            part["first"] + part["last"], part["summary"] + ""
    except FileNotFoundError:
        raise PartsError(f"{path} was not cut yet; run `cut` first") from None
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise PartsError(f"{state_file(path)} is damaged ({failure}); remove it and run `cut`") from failure
    if state["digest"] != digest(lines):
        raise PartsError(f"{path} has changed since it was cut; run `cut --again`, which drops its summaries")
    return state, lines


def store(path: Path, state: dict[str, Any]) -> None:
    target = state_file(path)
    fresh = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text(json.dumps(state, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        fresh.replace(target)
    except OSError as failure:
        fresh.unlink(missing_ok=True)
        raise PartsError(f"cannot write {target}: {failure}") from failure


def describe(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"part": number, "lines": f"{part['first']}-{part['last']}", "summary": len(part["summary"])}
        for number, part in enumerate(state["parts"], 1)
    ]


def cut(options: argparse.Namespace) -> Any:
    lines = read_lines(options.source)
    if not "".join(lines).strip():
        raise PartsError(f"{options.source} has no text")
    if state_file(options.source).exists() and not options.again:
        raise PartsError(f"{options.source} was cut already; go on with `next`, or use --again to drop its summaries")
    parts = [{"first": first, "last": last, "summary": ""} for first, last in cut_lines(lines, options.size)]
    state = {"digest": digest(lines), "parts": parts}
    store(options.source, state)
    return describe(state)


def pick(state: dict[str, Any], number: int) -> dict[str, Any]:
    if not 1 <= number <= len(state["parts"]):
        raise PartsError(f"there are parts 1 to {len(state['parts'])}")
    found: dict[str, Any] = state["parts"][number - 1]
    return found


def following(options: argparse.Namespace) -> Any:
    state, lines = load(options.source)
    for number, part in enumerate(state["parts"], 1):
        if number == options.part or (options.part is None and not part["summary"]):
            text = "".join(lines[part["first"] - 1 : part["last"]])
            return {"part": number, "of": len(state["parts"]), "lines": f"{part['first']}-{part['last']}", "text": text}
    if options.part is not None:
        pick(state, options.part)
    return {"part": None, "of": len(state["parts"]), "lines": "", "text": "Every part has a summary; run `join`."}


def save(options: argparse.Namespace) -> Any:
    state, lines = load(options.source)
    part = pick(state, options.part)
    text = (sys.stdin.read() if options.text == "-" else options.text).strip()
    if not text:
        raise PartsError("the summary is empty")
    part["summary"] = text
    store(options.source, state)
    known = set(NUMBER.findall("".join(lines[part["first"] - 1 : part["last"]])))
    strange = sorted(set(NUMBER.findall(text)) - known)
    missing = sum(not each["summary"] for each in state["parts"])
    return {"part": options.part, "missing": missing, "numbers not in the part": strange}


def status(options: argparse.Namespace) -> Any:
    return describe(load(options.source)[0])


def join(options: argparse.Namespace) -> Any:
    state, _ = load(options.source)
    missing = [str(number) for number, part in enumerate(state["parts"], 1) if not part["summary"]]
    if missing:
        raise PartsError(f"parts without a summary: {', '.join(missing)}")
    return [
        {"part": number, "lines": f"{part['first']}-{part['last']}", "summary": part["summary"]}
        for number, part in enumerate(state["parts"], 1)
    ]


def show(result: Any) -> str:
    if isinstance(result, dict) and "text" in result:
        head = f"--- part {result['part']} of {result['of']}, lines {result['lines']} ---\n" if result["part"] else ""
        return f"{head}{result['text']}".rstrip("\n")
    if isinstance(result, dict):
        return "\n".join(f"{key}: {value}" for key, value in result.items() if value != [])
    if "summary" in result[0] and isinstance(result[0]["summary"], str):
        return "\n\n".join(f"[part {each['part']}, lines {each['lines']}]\n{each['summary']}" for each in result)
    return "\n".join(
        f"part {each['part']}: lines {each['lines']}, {'done' if each['summary'] else 'missing'}" for each in result
    )


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("source", type=Path, help="a text file")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    cutting = commands.add_parser("cut", parents=[shared], help="cut a text into parts")
    cutting.add_argument("--size", type=int, default=12_000, help="characters of a part (default: 12,000)")
    cutting.add_argument("--again", action="store_true")
    cutting.set_defaults(run=cut)
    going = commands.add_parser("next", parents=[shared], help="print the next part without a summary")
    going.add_argument("--part", type=int)
    going.set_defaults(run=following)
    saving = commands.add_parser("save", parents=[shared], help="keep the summary of a part")
    saving.add_argument("part", type=int)
    saving.add_argument("text", help="the summary; - reads standard input")
    saving.set_defaults(run=save)
    commands.add_parser("status", parents=[shared], help="which parts are done").set_defaults(run=status)
    commands.add_parser("join", parents=[shared], help="print all summaries").set_defaults(run=join)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        result = options.run(options)
    except PartsError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(result, ensure_ascii=False, indent=2) if options.json else show(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
