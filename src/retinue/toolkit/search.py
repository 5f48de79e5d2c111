"""The tool_search and tool_call tools: rarely used tools cost nothing until they are looked up."""

from __future__ import annotations

import json
import re
from typing import Any

from retinue.core.errors import ToolFailed
from retinue.tools.names import CALL, SEARCH
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument
from retinue.tools.toolset import Toolset

MOST_FOUND = 5


class SearchArguments(Arguments):
    query: str = argument(min_length=1, max_length=200, description="name or words")


class CallArguments(Arguments):
    name: str
    arguments: dict[str, Any] = argument({})


def search_tools(toolset: Toolset) -> tuple[Tool[Any], ...]:
    """The two tools for a toolset's deferred tools; none where nothing is deferred."""
    if not toolset.deferred:
        return ()

    async def search(arguments: SearchArguments, context: ToolContext) -> ToolOutput:
        found = find_deferred(toolset, arguments.query)
        if not found:
            names = ", ".join(tool.name for tool in toolset.deferred)
            return ToolOutput.of(f"Nothing matches '{arguments.query}'. Deferred tools: {names}.")
        return ToolOutput.of("\n\n".join(map(describe_tool, found)))

    async def call(arguments: CallArguments, context: ToolContext) -> ToolOutput:
        """The loop judges and runs such a call as the tool it names, so nothing is left to do here."""
        raise ToolFailed(f"There is no tool `{arguments.name}` to run like this. Look it up with {SEARCH}.")

    return (
        Tool(
            name=SEARCH,
            summary="Look up deferred tools",
            description="Find deferred tools; gives their schemas.",
            arguments=SearchArguments,
            run=search,
        ),
        Tool(
            name=CALL,
            summary="Run a deferred tool",
            description="Run a deferred tool.",
            arguments=CallArguments,
            run=call,
            parallel=False,
        ),
    )


def find_deferred(toolset: Toolset, query: str) -> list[Tool[Any]]:
    """The deferred tools that a query means, best first."""
    words = re.findall(r"[a-z0-9]+", query.lower())
    scored = [(_score(tool, query.strip().lower(), words), tool) for tool in toolset.deferred]
    ranked = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])
    return [tool for _, tool in ranked[:MOST_FOUND]]


def _score(tool: Tool[Any], query: str, words: list[str]) -> int:
    if tool.name == query:
        return 1_000
    text = f"{tool.summary} {tool.description}".lower()
    return sum(3 * (word in tool.name) + (word in text) for word in words)


def describe_tool(tool: Tool[Any]) -> str:
    """A tool's schema as text."""
    parameters = json.dumps(tool.spec.parameters, ensure_ascii=False, separators=(",", ":"))
    return f"{tool.name}: {tool.spec.description}\n{parameters}"
