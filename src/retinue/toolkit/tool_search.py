"""The tool_search and tool_call tools, which give access to deferred tools.

The schemas of deferred tools are not sent with every request; the model looks them up when it needs them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from retinue.core.errors import ToolFailed
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument
from retinue.tools.tool_names import TOOL_CALL, TOOL_SEARCH
from retinue.tools.toolset import Toolset

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
        return ToolOutput.of("\n\n".join(map(describe_tool, found)))

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


def describe_tool(tool: Tool[Any]) -> str:
    """Return a tool's name, description and schema as text."""
    parameters = json.dumps(tool.spec.parameters, ensure_ascii=False, separators=(",", ":"))
    return f"{tool.name}: {tool.spec.description}\n{parameters}"
