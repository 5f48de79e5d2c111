"""The tools of the lossless context engine: open a summary, and search the messages that summaries replaced."""

from __future__ import annotations

from typing import Any

from retinue.context.lossless import find_leaf, find_nodes, messages_of
from retinue.context.summary_input import render_messages
from retinue.core.errors import ToolFailed
from retinue.core.labels import Label, mix
from retinue.core.messages import label_of
from retinue.sessions.entries import MessageAdded
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument

PAGE_CHARS = 12_000
MAX_FOUND = 20
_AROUND_CHARS = 160


class OpenArguments(Arguments):
    id: str = argument(description="the id of a summary")
    page: int = argument(1, description="which page, if it has several", ge=1)


class SearchArguments(Arguments):
    query: str = argument(description="words that must all be in a message")


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the tools that read the transcript of the session."""
    services = parts.services

    async def open_summary(arguments: OpenArguments, context: ToolContext) -> ToolOutput:
        entries = await services.transcript(context.session)
        nodes = find_nodes(entries)
        node = nodes.get(arguments.id.strip())
        if node is None:
            raise ToolFailed(f"There is no summary '{arguments.id}'. Summaries: {', '.join(nodes) or 'none'}.")
        if node.children:
            children = [nodes[child] for child in node.children if child in nodes]
            text = "\n\n".join(f"## {child.id} ({child.messages} messages)\n\n{child.text}" for child in children)
            return _page(text, arguments.page, mix([node.label, *(child.label for child in children)]))
        messages = messages_of(entries, node)
        return _page(render_messages(messages), arguments.page, mix([node.label, *label_of.of_all(messages)]))

    async def search(arguments: SearchArguments, context: ToolContext) -> ToolOutput:
        words = arguments.query.lower().split()
        if not words:
            raise ToolFailed("`query` is empty. Name the words to look for.")
        entries = await services.transcript(context.session)
        nodes = find_nodes(entries)
        lines: list[str] = []
        labels = [Label.AGENT]
        for entry in entries:
            if not isinstance(entry.body, MessageAdded) or len(lines) >= MAX_FOUND:
                continue
            text = render_messages([entry.body.message])
            if not all(word in text.lower() for word in words):
                continue
            leaf = find_leaf(entries, nodes, entry.id)
            if leaf is not None:
                lines.append(f"{leaf}: {_excerpt(text, words[0])}")
                labels.append(label_of(entry.body.message))
        found = "\n".join(lines) or "No message that a summary replaced has these words."
        return ToolOutput.of(found, label=mix(labels))

    return (
        Tool(
            name="context_open",
            summary="Open a summary of this conversation",
            description="Shows what a summary was made from: summaries of parts, or the messages, word for word.",
            arguments=OpenArguments,
            run=open_summary,
            read_only=True,
        ),
        Tool(
            name="context_search",
            summary="Search messages behind summaries",
            description="Finds messages of this conversation that only summaries show, and the summaries to open.",
            arguments=SearchArguments,
            run=search,
            read_only=True,
        ),
    )


def _page(text: str, page: int, label: Label) -> ToolOutput:
    pages = max(1, -(-len(text) // PAGE_CHARS))
    if page > pages:
        raise ToolFailed(f"There are only {pages} pages.")
    part = text[(page - 1) * PAGE_CHARS : page * PAGE_CHARS]
    more = f"\n\n(page {page} of {pages})" if pages > 1 else ""
    return ToolOutput.of(part + more, label=label)


def _excerpt(text: str, word: str) -> str:
    at = text.lower().find(word)
    start, end = max(0, at - _AROUND_CHARS), at + _AROUND_CHARS
    return " ".join(text[start:end].split())
