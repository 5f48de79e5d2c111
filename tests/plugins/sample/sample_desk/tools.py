"""Two tools: one that only reads, one with effects."""

from __future__ import annotations

from typing import Any

from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput


class Note(Arguments):
    """A text."""

    text: str = ""


async def read(arguments: Note, context: ToolContext) -> ToolOutput:
    return ToolOutput.of(f"the desk has read: {arguments.text}")


async def write(arguments: Note, context: ToolContext) -> ToolOutput:
    return ToolOutput.of(f"the desk has written: {arguments.text}")


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    return (
        Tool("desk_read", "Read at the desk", "Read at the desk.", Note, read),
        Tool("desk_write", "Write at the desk", "Write at the desk.", Note, write),
    )
