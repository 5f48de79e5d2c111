"""Tool calls and their results as a person reads them: one row with the time, a diff, or text instead of JSON."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.cli.screen import one_line
from retinue.cli.terminal import format_span, label

if TYPE_CHECKING:
    from retinue.core.messages import ToolCall, ToolResult

ARGUMENTS_SHOWN = 100
RESULT_LINES_SHOWN = {"off": 4, "on": 20, "full": 1_000_000}
"""Lines of a tool result that are shown, by `/verbose` level."""
DIFF_LINES_SHOWN = {"off": 16, "on": 60, "full": 1_000_000}
DIFF_CONTEXT_LINES = 1
MAX_COMPARED_BYTES = 1_000_000
TELLING = ("command", "pattern", "query", "url", "task", "path")
"""Arguments that summarise a call."""
ADDED, REMOVED, PLAIN, WRONG = "green", "red", "dim", "red"
_UNTRUSTED = re.compile(
    r'(?:^.*\n)*?^<<<EXTERNAL_UNTRUSTED_CONTENT id="[^"]*">>>\n(?:.*\n)*?---\n(?P<text>[\s\S]*?)'
    r'\n?<<<END_EXTERNAL_UNTRUSTED_CONTENT id="[^"]*">>>',
    re.MULTILINE,
)


class Line(Struct, frozen=True):
    """A line of output and its style."""

    text: str
    style: str = PLAIN


class Report(Struct, frozen=True):
    """What is shown of a finished call: a summary for its row, and lines below it."""

    summary: str
    lines: tuple[Line, ...]


def format_row(call: ToolCall) -> str:
    """Format a call on one line."""
    return f"{call.name} {brief(call.arguments)}".rstrip()


def format_seconds(seconds: float) -> str:
    """Format the time that a call took."""
    return f"{seconds:.1f} s" if seconds < 60 else format_span(seconds)


def brief(arguments: Mapping[str, Any]) -> str:
    """Format the arguments of a call on one line."""
    telling = next((arguments[name] for name in TELLING if name in arguments), None)
    if telling is not None or len(arguments) == 1:
        value = telling if telling is not None else next(iter(arguments.values()))
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    else:
        text = json.dumps(dict(arguments), ensure_ascii=False) if arguments else ""
    text = one_line(text)
    return text if len(text) <= ARGUMENTS_SHOWN else text[: ARGUMENTS_SHOWN - 1] + "…"


def report_call(call: ToolCall, result: ToolResult, before: str | None, verbose: str) -> Report:
    """Return what is shown of a finished call; `before` is the text of the file that the call was to change."""
    changes = None if result.is_error else list_changes(call, before)
    if changes is None:
        style = WRONG if result.is_error else PLAIN
        lines = [Line(line, style) for line in to_text(result.text).strip().splitlines()]
        return Report("", _limit(lines, RESULT_LINES_SHOWN.get(verbose, RESULT_LINES_SHOWN["off"])))
    added = sum(1 for line in changes if line.style == ADDED)
    removed = sum(1 for line in changes if line.style == REMOVED)
    shown = _limit(changes, DIFF_LINES_SHOWN.get(verbose, DIFF_LINES_SHOWN["off"]))
    return Report(f"+{added} -{removed}", shown)


def _limit(lines: list[Line], most: int) -> tuple[Line, ...]:
    more = len(lines) - most
    if more <= 0:
        return tuple(lines)
    return (*lines[:most], Line(f"… {more:,} more line{'s' if more > 1 else ''}"))


def list_changes(call: ToolCall, before: str | None) -> list[Line] | None:
    """Return the changes that a call makes to files as the lines of a diff; None for any other call."""
    arguments = call.arguments
    match call.name:
        case "write":
            text = arguments.get("content")
            return list(_compare(before or "", text)) if isinstance(text, str) else None
        case "edit":
            edits = arguments.get("edits", [arguments])
            if not isinstance(edits, list):
                return None
            pairs = [(edit.get("oldText"), edit.get("newText")) for edit in edits if isinstance(edit, dict)]
            return [line for old, new in pairs for line in _compare(str(old or ""), str(new or ""))]
        case "apply_patch":
            patch = str(arguments.get("input", ""))
            return [Line(line, _patch_style(line)) for line in patch.splitlines()[1:-1]]
    return None


def _compare(before: str, after: str) -> Iterator[Line]:
    differences = difflib.unified_diff(before.splitlines(), after.splitlines(), n=DIFF_CONTEXT_LINES, lineterm="")
    for number, line in enumerate(differences):
        if number < 2:
            continue
        if line.startswith("@@"):
            if number > 2:
                yield Line("…")
            continue
        yield Line(line, _patch_style(line))


def _patch_style(line: str) -> str:
    return ADDED if line.startswith("+") else REMOVED if line.startswith("-") else PLAIN


def read_before(call: ToolCall, workspace: str) -> str | None:
    """Return the text of the file that a call is about to overwrite; None if it cannot be known here.

    Only a regular file in the workspace is read: a gateway on another machine has other files.
    """
    path = call.arguments.get("path")
    if call.name != "write" or not isinstance(path, str) or not workspace:
        return None
    try:
        root = Path(workspace).resolve()
        file = (root / path).resolve()
        if not file.is_relative_to(root) or not file.is_file() or file.stat().st_size > MAX_COMPARED_BYTES:
            return None
        return file.read_text("utf-8", errors="replace")
    except (OSError, ValueError):
        return None


def to_text(result: str) -> str:
    """Return a result without what is meant for the model: JSON becomes lines, and markers are removed."""
    result = _UNTRUSTED.sub(lambda found: found["text"], result)
    if not result.lstrip().startswith(("{", "[")):
        return result
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return result
    return "\n".join(_describe(value))


def _describe(value: Any) -> Iterator[str]:
    match value:
        case {"results": []}:
            yield "nothing found"
        case {"results": list(hits)} | {"sessions": list(hits)} | {"subagents": list(hits)} | {"agents": list(hits)}:
            yield from (_format_item(hit) for hit in hits)
        case {"path": _, "text": str(text), **_rest}:
            yield text
        case dict():
            for key, inner in value.items():
                yield from _describe_field(key, inner)
        case list():
            yield from (_format_item(item) for item in value)
        case _:
            yield str(value)


def _describe_field(key: str, value: Any) -> Iterator[str]:
    match value:
        case dict() | list() if value:
            yield f"{label(key)}:"
            yield from (f"  {line}" for line in _describe(value))
        case None | "" | {} | []:
            pass
        case _:
            yield f"{label(key)}: {_plain(value)}"


def _format_item(item: Any) -> str:
    match item:
        case {"path": path, "snippet": snippet, **rest}:
            place = f"{path}:{rest['startLine']}" if "startLine" in rest else str(path)
            return f"{place}  {one_line(_plain(snippet))}"
        case dict():
            return " · ".join(
                f"{label(key)}: {one_line(_plain(value))}"
                for key, value in item.items()
                if not isinstance(value, dict | list) and value not in (None, "")
            )
    return one_line(_plain(item))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _UNTRUSTED.sub(lambda found: found["text"], str(value))
