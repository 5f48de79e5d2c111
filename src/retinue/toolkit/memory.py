"""The tools memory_search, memory_get and memory_write."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import Field

from retinue.core.clock import Clock, IdFactory
from retinue.core.errors import StorageError, ToolFailed
from retinue.core.keys import AgentId, SessionKey
from retinue.core.trust import Trust, least
from retinue.security.untrusted_text import TextSource, wrap_untrusted
from retinue.storage.files import NotThere
from retinue.toolkit.origin import note_write
from retinue.toolkit.paths import is_control_path, told
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from retinue.memory.index import SearchResult
    from retinue.memory.ranking import Hit
    from retinue.memory.reading import Excerpt
    from retinue.toolkit.parts import ToolParts

MOST_WRITTEN_CHARS = 20_000
_NOTE_NAME = re.compile(r"[\w][\w .-]{0,79}(?:/[\w][\w .-]{0,79}){0,3}")


class Notebook(Protocol):
    """The memory of an agent as one session may use it."""

    @property
    def cites(self) -> bool: ...

    async def search(self, text: str, *, max_results: int | None, min_score: float | None) -> SearchResult: ...

    async def read(self, path: str, start: int, lines: int | None) -> Excerpt: ...

    def note_change(self) -> None:
        """Say that a note was written."""
        ...


OpenNotebook = Callable[[AgentId, SessionKey], Awaitable[Notebook | None]]
"""The notebook for a session; None where it may not search memory."""


class SearchArguments(Arguments):
    query: str = Field(min_length=1, max_length=4_000, description="What to look for, in words or as a question.")
    max_results: int | None = Field(None, ge=1, le=50, alias="maxResults")
    min_score: float | None = Field(None, ge=0, le=1, alias="minScore")


class GetArguments(Arguments):
    path: str = Field(min_length=1, description="A path as memory_search gives it.")
    start: int = Field(1, ge=1, alias="from", description="The first line.")
    lines: int | None = Field(None, ge=1, le=2_000, description="How many lines.")


class WriteArguments(Arguments):
    text: str = Field(min_length=1, max_length=MOST_WRITTEN_CHARS, description="Markdown to append.")
    note: str | None = Field(None, description="Name of a note under memory/; without it today's log.")


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """The memory tools of a runtime whose agents have one."""
    return memory_tools(parts.notebooks, parts.clock, parts.new_id) if parts.notebooks else ()


def memory_tools(open_notebook: OpenNotebook, clock: Clock, new_id: IdFactory) -> tuple[Tool[Any], ...]:
    """The three memory tools."""

    async def notebook_of(context: ToolContext) -> Notebook:
        notebook = await open_notebook(context.agent, context.session)
        if notebook is None:
            raise ToolFailed("Memory is private and cannot be used in this chat. Answer without it.")
        return notebook

    async def search(arguments: SearchArguments, context: ToolContext) -> ToolOutput:
        notebook = await notebook_of(context)
        try:
            result = await notebook.search(
                arguments.query, max_results=arguments.max_results, min_score=arguments.min_score
            )
        except (StorageError, TimeoutError) as error:
            raise ToolFailed(f"Memory cannot be searched now: {error}") from error
        return _tell_result(result, new_id, cites=notebook.cites)

    async def get(arguments: GetArguments, context: ToolContext) -> ToolOutput:
        notebook = await notebook_of(context)
        try:
            excerpt = await notebook.read(arguments.path, arguments.start, arguments.lines)
        except NotThere:
            return ToolOutput.of(json.dumps({"path": arguments.path, "text": ""}))
        except StorageError as error:
            raise ToolFailed(str(error)) from error
        return _tell_excerpt(excerpt, new_id)

    async def write(arguments: WriteArguments, context: ToolContext) -> ToolOutput:
        path = note_path(arguments.note, clock.now().astimezone())
        text = arguments.text.replace("\r\n", "\n").strip("\n") + "\n"
        with told():
            before = _read_note(context, path)
            note_write(context, context.workspace, path, before=before, after=text)
            separator = "" if not before or before.endswith("\n") else "\n"
            context.workspace.append(path, (separator + text).encode("utf-8", "replace"))
        notebook = await open_notebook(context.agent, context.session)
        if notebook is not None:
            notebook.note_change()
        return ToolOutput.of(f"Written to {path}.")

    return (
        Tool(
            "memory_search",
            "Search memory files",
            "Search MEMORY.md, memory/*.md and past sessions, by meaning and by words. Use it before answering about "
            "earlier work, decisions, dates, people, preferences or tasks.",
            SearchArguments,
            search,
        ),
        Tool(
            "memory_get",
            "Read lines of a memory file",
            "Read lines of a memory file that memory_search found.",
            GetArguments,
            get,
        ),
        Tool(
            "memory_write",
            "Write to memory",
            "Append something worth remembering to today's log, or to a named note.",
            WriteArguments,
            write,
            parallel=False,
        ),
    )


def note_path(note: str | None, now: datetime) -> str:
    """Where a note stands: today's log, or the named file beneath `memory/`."""
    if note is None:
        return f"memory/{now:%Y-%m-%d}.md"
    name = note.strip().removeprefix("memory/").removesuffix(".md")
    path = f"memory/{name}.md"
    if not _NOTE_NAME.fullmatch(name) or ".." in name or is_control_path(path):
        raise ToolFailed(f"'{note}' is not the name of a note. Use letters, digits, '-' and '/', as in projects/acme.")
    return path


def _read_note(context: ToolContext, path: str) -> str:
    """What a note says before something is appended to it."""
    try:
        data = context.workspace.read(path, max_bytes=16 * 1024 * 1024).data
    except NotThere:
        return ""
    return data.decode("utf-8", "replace")


def describe_hit(hit: Hit, *, cites: bool = False) -> dict[str, Any]:
    """A hit in the shape that people and programs know."""
    shown = f"{hit.snippet}\n\nSource: {hit.citation}" if cites else hit.snippet
    return {
        "path": hit.path,
        "startLine": hit.start_line,
        "endLine": hit.end_line,
        "score": hit.score,
        "snippet": shown,
        "source": hit.source,
    }


def _tell_result(result: SearchResult, new_id: IdFactory, *, cites: bool) -> ToolOutput:
    results = []
    for hit in result.hits:
        told_hit = describe_hit(hit, cites=cites)
        if hit.origin is Trust.UNTRUSTED:
            told_hit["snippet"] = wrap_untrusted(told_hit["snippet"], TextSource.MEMORY, new_id=new_id, warn=False)
        results.append(told_hit)
    answer: dict[str, Any] = {
        "results": results,
        "provider": result.provider,
        "model": result.model,
        "mode": result.mode,
        "citations": cites,
    }
    if result.reason:
        answer["fallback"] = result.reason
    trust = least([Trust.AGENT, *(hit.origin for hit in result.hits)])
    return ToolOutput.of(json.dumps(answer, ensure_ascii=False), trust=trust)


def _tell_excerpt(excerpt: Excerpt, new_id: IdFactory) -> ToolOutput:
    text = excerpt.text
    if excerpt.origin is Trust.UNTRUSTED:
        text = wrap_untrusted(text, TextSource.MEMORY, new_id=new_id)
    answer: dict[str, Any] = {"path": excerpt.path, "text": text, "from": excerpt.start_line, "lines": excerpt.lines}
    if excerpt.next_line is not None:
        answer |= {"truncated": True, "nextFrom": excerpt.next_line}
    return ToolOutput.of(json.dumps(answer, ensure_ascii=False), trust=least([Trust.AGENT, excerpt.origin]))
