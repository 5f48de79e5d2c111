"""The set of tools of a session, and the size limit of tool results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from retinue.core.errors import RetinueError
from retinue.core.messages import ToolCall
from retinue.core.model import ToolSpec
from retinue.tools.tool import Tool
from retinue.tools.tool_names import ALIASES, TOOL_CALL


class Toolset(Mapping[str, Tool[Any]]):
    """Tools by name, in the order in which they were added."""

    def __init__(self, tools: Iterable[Tool[Any]]) -> None:
        self._tools: dict[str, Tool[Any]] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise RetinueError(f"Two tools are called `{tool.name}`. Rename one or disable its plugin.")
            self._tools[tool.name] = tool

    def __getitem__(self, name: str) -> Tool[Any]:
        return self._tools[ALIASES.get(name, name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tool specifications that are sent with every request."""
        return tuple(tool.spec for tool in self._tools.values() if not tool.deferred)

    @property
    def deferred(self) -> tuple[Tool[Any], ...]:
        """The tools that the model finds with `tool_search`."""
        return tuple(tool for tool in self._tools.values() if tool.deferred)


def unwrap_call(call: ToolCall) -> ToolCall:
    """Return the call inside a `tool_call`, with the same id; return any other call unchanged.

    Some models write the inner arguments as JSON text.
    """
    name, arguments = call.arguments.get("name"), call.arguments.get("arguments", {})
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    if call.name != TOOL_CALL or not isinstance(name, str) or not isinstance(arguments, Mapping):
        return call
    return ToolCall(call.id, name, arguments, call.signature)


_CHARS_PER_TOKEN = 4
_WINDOW_SHARE = 0.3
_MIN_CHARS = 2_000
_HEAD_SHARE = 0.7


def max_result_chars(window: int, override: int | None = None) -> int:
    """Return the maximum number of characters of one tool result for a context window."""
    if window >= 200_000:
        ceiling = 64_000
    elif window >= 100_000:
        ceiling = 32_000
    else:
        ceiling = 16_000
    share = int(window * _CHARS_PER_TOKEN * _WINDOW_SHARE)
    return max(_MIN_CHARS, min(share, override or ceiling))


def cap_output(text: str, window: int, override: int | None = None) -> str:
    """Shorten a tool result to the limit: keep the beginning and the end, and say how much is missing."""
    room = max_result_chars(window, override)
    if len(text) <= room:
        return text
    head = int(room * _HEAD_SHARE)
    dropped = len(text) - room
    return f"{text[:head]}\n[… {dropped:,} characters left out; request a smaller part …]\n{text[-(room - head) :]}"
