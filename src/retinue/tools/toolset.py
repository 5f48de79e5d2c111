"""The set of tools of a session, access to its deferred tools, and the size limit of tool results.

The schemas of deferred tools are not sent with every request; the model looks them up with tool_search when it needs
them, and calls them with tool_call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from retinue.core.errors import RetinueError, ToolFailed
from retinue.core.messages import ToolCall
from retinue.core.model import ToolSpec
from retinue.tools.policy import ALIASES, TOOL_CALL, TOOL_SEARCH
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument


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


MAX_RESULTS = 5


class ToolSearchArguments(Arguments):
    query: str = argument(min_length=1, max_length=200, description="name or words")


class ToolCallArguments(Arguments):
    name: str
    arguments: dict[str, Any] = argument({})


def search_tools(toolset: Toolset) -> tuple[Tool[Any], ...]:
    """Make the two tools for a toolset's deferred tools; none if no tool is deferred."""
    if not toolset.deferred:
        return ()

    async def search(arguments: ToolSearchArguments, context: ToolContext) -> ToolOutput:
        found = find_deferred(toolset, arguments.query)
        if not found:
            names = ", ".join(tool.name for tool in toolset.deferred)
            return ToolOutput.of(f"Nothing matches '{arguments.query}'. Deferred tools: {names}.")
        return ToolOutput.of("\n\n".join(map(_describe, found)))

    async def call(arguments: ToolCallArguments, context: ToolContext) -> ToolOutput:
        """The loop replaces a `tool_call` by the call inside it, so this runs only if that failed."""
        raise ToolFailed(f"There is no deferred tool `{arguments.name}`. Look it up with {TOOL_SEARCH}.")

    return (
        Tool(
            name=TOOL_SEARCH,
            summary="Look up deferred tools",
            description="Find deferred tools; gives their schemas.",
            arguments=ToolSearchArguments,
            run=search,
        ),
        Tool(
            name=TOOL_CALL,
            summary="Run a deferred tool",
            description="Run a deferred tool.",
            arguments=ToolCallArguments,
            run=call,
            parallel=False,
        ),
    )


def find_deferred(toolset: Toolset, query: str) -> list[Tool[Any]]:
    """Return the deferred tools that match a query, best first."""
    words = re.findall(r"[a-z0-9]+", query.lower())
    scored = [(_score(tool, query.strip().lower(), words), tool) for tool in toolset.deferred]
    ranked = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])
    return [tool for _, tool in ranked[:MAX_RESULTS]]


def _score(tool: Tool[Any], query: str, words: list[str]) -> int:
    if tool.name == query:
        return 1_000
    text = f"{tool.summary} {tool.description}".lower()
    return sum(3 * (word in tool.name) + (word in text) for word in words)


def _describe(tool: Tool[Any]) -> str:
    """Return a tool's name, description and schema as text."""
    parameters = json.dumps(tool.spec.parameters, ensure_ascii=False, separators=(",", ":"))
    return f"{tool.name}: {tool.spec.description}\n{parameters}"
