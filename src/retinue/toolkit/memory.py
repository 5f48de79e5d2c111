"""The tools memory_search, memory_get and memory_write."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from retinue.core.clock import Clock, IdFactory
from retinue.core.errors import StorageError, ToolFailed
from retinue.core.keys import AgentId, SessionKey
from retinue.core.labels import Label, mix
from retinue.security.untrusted_text import TextSource, wrap_untrusted
from retinue.storage.files import NotThere
from retinue.toolkit.file_labels import record_write
from retinue.toolkit.files.paths import is_control_path, storage_errors_explained
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument

if TYPE_CHECKING:
    from retinue.memory.backend import SearchResult
    from retinue.memory.notes import Excerpt
    from retinue.memory.search.ranking import MemoryHit
    from retinue.toolkit.parts import ToolParts

MAX_WRITE_CHARS = 20_000
_NOTE_NAME = re.compile(r"[\w][\w .-]{0,79}(?:/[\w][\w .-]{0,79}){0,3}")


class MemoryAccess(Protocol):
    """The memory of an agent for one session."""

    @property
    def cites(self) -> bool: ...

    async def search(self, text: str, *, max_results: int | None, min_score: float | None) -> SearchResult: ...

    async def read(self, path: str, start: int, lines: int | None) -> Excerpt: ...

    def author_of(self, label: Label) -> str:
        """Return the name of the person whose text has a label; empty if it is of no single person."""
        ...

    def record_change(self) -> None:
        """Record that a note was written."""
        ...


OpenMemory = Callable[[AgentId, SessionKey], Awaitable[MemoryAccess | None]]
"""Returns the memory for a session; None if it may not search memory."""


class MemorySearchArguments(Arguments):
    query: str = argument(min_length=1, max_length=4_000, description="What to look for, in words or as a question.")
    max_results: int | None = argument(None, ge=1, le=50)
    min_score: float | None = argument(None, ge=0, le=1)


class MemoryGetArguments(Arguments):
    path: str = argument(min_length=1, description="A path as memory_search gives it.")
    start: int = argument(1, ge=1, name="from", description="The first line.")
    lines: int | None = argument(None, ge=1, le=2_000, description="How many lines.")


class MemoryWriteArguments(Arguments):
    text: str = argument(min_length=1, max_length=MAX_WRITE_CHARS, description="Markdown to append.")
    note: str | None = argument(None, description="Name of a note under memory/; without it today's log.")


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the memory tools if memory is available."""
    return memory_tools(parts.services.session_memory, parts.clock, parts.new_id)


def memory_tools(open_session_memory: OpenMemory, clock: Clock, new_id: IdFactory) -> tuple[Tool[Any], ...]:
    """Make the three memory tools."""

    async def memory_of(context: ToolContext) -> MemoryAccess:
        session_memory = await open_session_memory(context.agent, context.session)
        if session_memory is None:
            raise ToolFailed("Memory is private and cannot be used in this chat. Answer without it.")
        return session_memory

    async def search(arguments: MemorySearchArguments, context: ToolContext) -> ToolOutput:
        session_memory = await memory_of(context)
        try:
            result = await session_memory.search(
                arguments.query, max_results=arguments.max_results, min_score=arguments.min_score
            )
        except (StorageError, TimeoutError) as error:
            raise ToolFailed(f"Memory cannot be searched now: {error}") from error
        return _format_result(result, new_id, session_memory)

    async def get(arguments: MemoryGetArguments, context: ToolContext) -> ToolOutput:
        session_memory = await memory_of(context)
        try:
            excerpt = await session_memory.read(arguments.path, arguments.start, arguments.lines)
        except NotThere:
            return ToolOutput.of(json.dumps({"path": arguments.path, "text": ""}))
        except StorageError as error:
            raise ToolFailed(str(error)) from error
        return _format_excerpt(excerpt, new_id)

    async def write(arguments: MemoryWriteArguments, context: ToolContext) -> ToolOutput:
        path = note_path(arguments.note, clock.now().astimezone())
        text = arguments.text.replace("\r\n", "\n").strip("\n") + "\n"
        with storage_errors_explained():
            before = _read_note(context, path)
            record_write(context, context.workspace, path, before=before, after=text)
            separator = "" if not before or before.endswith("\n") else "\n"
            context.workspace.append(path, (separator + text).encode("utf-8", "replace"))
        session_memory = await open_session_memory(context.agent, context.session)
        if session_memory is not None:
            session_memory.record_change()
        return ToolOutput.of(f"Written to {path}.")

    return (
        Tool(
            "memory_search",
            "Search memory files",
            "Search MEMORY.md, memory/*.md and past sessions, by meaning and by words. Use it before answering about "
            "earlier work, decisions, dates, people, preferences or tasks.",
            MemorySearchArguments,
            search,
        ),
        Tool(
            "memory_get",
            "Read lines of a memory file",
            "Read lines of a memory file that memory_search found.",
            MemoryGetArguments,
            get,
        ),
        Tool(
            "memory_write",
            "Write to memory",
            "Append something worth remembering to today's log, or to a named note.",
            MemoryWriteArguments,
            write,
            parallel=False,
        ),
    )


def note_path(note: str | None, now: datetime) -> str:
    """Return the path of a note: today's log, or the named file below `memory/`."""
    if note is None:
        return f"memory/{now:%Y-%m-%d}.md"
    name = note.strip().removeprefix("memory/").removesuffix(".md")
    path = f"memory/{name}.md"
    if not _NOTE_NAME.fullmatch(name) or ".." in name or is_control_path(path):
        raise ToolFailed(
            f"'{note}' is not a valid name of a note. Use letters, digits, '-' and '/', as in projects/acme."
        )
    return path


def _read_note(context: ToolContext, path: str) -> str:
    """Return the text of a note before something is appended to it."""
    try:
        data = context.workspace.read(path, max_bytes=16 * 1024 * 1024).data
    except NotThere:
        return ""
    return data.decode("utf-8", "replace")


def describe_hit(hit: MemoryHit, *, cites: bool = False) -> dict[str, Any]:
    """Return a hit in the format of the memory_search result."""
    shown = f"{hit.snippet}\n\nSource: {hit.citation}" if cites else hit.snippet
    return {
        "path": hit.path,
        "startLine": hit.start_line,
        "endLine": hit.end_line,
        "score": hit.score,
        "snippet": shown,
        "source": hit.source,
    }


def _format_result(result: SearchResult, new_id: IdFactory, session_memory: MemoryAccess) -> ToolOutput:
    cites = session_memory.cites
    results = []
    for hit in result.hits:
        shown_hit = describe_hit(hit, cites=cites)
        if hit.origin.is_foreign:
            author = session_memory.author_of(hit.origin)
            shown_hit["snippet"] = wrap_untrusted(
                shown_hit["snippet"], TextSource.MEMORY, new_id=new_id, sender=author, warn=False
            )
        results.append(shown_hit)
    answer: dict[str, Any] = {
        "results": results,
        "provider": result.provider,
        "model": result.model,
        "mode": result.mode,
        "citations": cites,
    }
    if result.reason:
        answer["fallback"] = result.reason
    label = mix([Label.AGENT.as_private if result.hits else Label.AGENT, *(hit.origin for hit in result.hits)])
    return ToolOutput.of(json.dumps(answer, ensure_ascii=False), label=label)


def _format_excerpt(excerpt: Excerpt, new_id: IdFactory) -> ToolOutput:
    text = excerpt.text
    if excerpt.origin.is_foreign:
        text = wrap_untrusted(text, TextSource.MEMORY, new_id=new_id)
    answer: dict[str, Any] = {"path": excerpt.path, "text": text, "from": excerpt.start_line, "lines": excerpt.lines}
    if excerpt.next_line is not None:
        answer |= {"truncated": True, "nextFrom": excerpt.next_line}
    return ToolOutput.of(json.dumps(answer, ensure_ascii=False), label=mix([Label.AGENT.as_private, excerpt.origin]))
