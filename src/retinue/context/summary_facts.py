"""Facts that are appended to a summary without a model: requests, files and failed calls of the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolResult

MAX_FAILURES = 8
FAILURE_CHARS = 240
FILES_CHARS = 2_000
ASK_CHARS = 600

_READING = frozenset({"read"})
_CHANGING = frozenset({"write", "edit", "memory_write"})
_PATH_ARGUMENTS = ("path", "file_path", "filePath", "file")
_PATCH_MARKS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")


class TouchedFiles(Struct, frozen=True):
    """The files that tools read and changed, oldest first."""

    read: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def as_details(self) -> dict[str, Any]:
        """Return the files as stored in the transcript, for the next compaction."""
        return {"readFiles": list(self.read), "modifiedFiles": list(self.changed)}

    @classmethod
    def from_details(cls, details: Mapping[str, Any]) -> TouchedFiles:
        """Return the files that an earlier compaction recorded; the transcript is not trusted to be valid."""

        def names(key: str) -> tuple[str, ...]:
            value = details.get(key)
            return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()

        return cls(names("readFiles"), names("modifiedFiles"))


NO_TOUCHED_FILES = TouchedFiles()


def find_touched_files(messages: Sequence[Message], before: TouchedFiles = NO_TOUCHED_FILES) -> TouchedFiles:
    """Return the files that successful calls touched, after those in `before`; a changed file is not listed as read."""
    failed = {message.call_id for message in messages if isinstance(message, ToolResult) and message.is_error}
    read, changed = dict.fromkeys(before.read), dict.fromkeys(before.changed)
    for message in messages:
        for call in message.calls if isinstance(message, AssistantMessage) else ():
            if call.id in failed:
                continue
            if call.name in _READING:
                read |= dict.fromkeys(_paths(call))
            elif call.name in _CHANGING:
                changed |= dict.fromkeys(_paths(call))
            elif call.name == "apply_patch":
                changed |= dict.fromkeys(_patched(call))
    return TouchedFiles(tuple(path for path in read if path not in changed), tuple(changed))


def find_failures(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the latest failed tool calls, one line each."""
    failed = [message for message in messages if isinstance(message, ToolResult) and message.is_error]
    lines = (f"`{result.tool}`: {_one_line(result.text, FAILURE_CHARS) or 'no message'}" for result in failed)
    return tuple(dict.fromkeys(lines))[-MAX_FAILURES:]


def build_fact_sections(
    asks: Sequence[str], failures: Sequence[str], files: TouchedFiles, fits: Callable[[str], bool]
) -> str:
    """Return the facts as Markdown sections, the most useful first; each is added only if the text still `fits`."""
    sections = (
        ("Last requests, in their own words", [_quote(ask) for ask in asks]),
        ("Files changed", _listed(files.changed)),
        ("Failed tool calls", [f"- {line}" for line in failures]),
        ("Files read", _listed(files.read)),
    )
    text = ""
    for heading, lines in sections:
        longer = f"{text}\n\n## {heading}\n\n" + "\n".join(lines)
        if lines and fits(longer):
            text = longer
    return text


def _paths(call: ToolCall) -> Iterable[str]:
    found = (call.arguments.get(name) for name in _PATH_ARGUMENTS)
    return [_one_line(path, 300) for path in found if isinstance(path, str) and path.strip()][:1]


def _patched(call: ToolCall) -> Iterable[str]:
    for value in call.arguments.values():
        for line in value.splitlines() if isinstance(value, str) else ():
            mark = next((mark for mark in _PATCH_MARKS if line.startswith(mark)), None)
            if mark is not None:
                yield _one_line(line.removeprefix(mark), 300)


def _listed(paths: Sequence[str]) -> list[str]:
    """Return the newest paths that fit, oldest first, after a line with the number of omitted paths."""
    fitting: list[str] = []
    left = FILES_CHARS
    for path in reversed(paths):
        left -= len(path) + 3
        if left < 0:
            break
        fitting.append(f"- {path}")
    missing = len(paths) - len(fitting)
    return [*([f"- … and {missing} before"] if missing else []), *reversed(fitting)]


def _quote(ask: str) -> str:
    cut = ask if len(ask) <= ASK_CHARS else ask[:ASK_CHARS] + " […]"
    return "> " + cut.strip().replace("\n", "\n> ") + "\n"


def _one_line(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
