"""`retinue memory`: index, search and read an agent's memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retinue.cli.common import Group, Invocation, ProgressBar, pass_invocation, table
from retinue.cli.terminal import count, format_value, label

if TYPE_CHECKING:
    from retinue.memory.backend import SearchResult
    from retinue.memory.fallback import FallbackMemory
    from retinue.memory.index import MemoryIndex
    from retinue.memory.notes import NoteProblem
    from retinue.memory.qmd.memory import QmdMemory
    from retinue.memory.search.ranking import MemoryHit
    from retinue.runtime.agents.workspace import AgentWorkspace

    AnyMemory = MemoryIndex | QmdMemory | FallbackMemory

T = TypeVar("T")

_AGENT = click.option("--agent", metavar="ID", help="Agent (default: the default agent).")
_SHOWN_PROBLEMS = 20


@click.group(cls=Group)
def memory() -> None:
    pass


@memory.command()
@_AGENT
@pass_invocation
def status(invocation: Invocation, agent: str | None) -> None:
    """Show what is indexed and whether it is current."""

    async def look(room: AgentWorkspace, found: AnyMemory) -> dict[str, Any]:
        from retinue.memory.fallback import FallbackMemory
        from retinue.memory.index import MemoryIndex

        match found:
            case MemoryIndex():
                return await _status_of_index(room, found)
            case FallbackMemory():
                return await _status_of_index(room, found.builtin) | {"backend": found.name}
            case _:
                return await _status_of_qmd(room, found)

    data = _with_memory(invocation, agent, look)
    shown = {
        key: value for key, value in data.items() if key != "problems" and (value is not None or key == "lastSync")
    }
    invocation.show(data, lambda: table([(label(key), format_value(value)) for key, value in shown.items()]))
    _note_problems(invocation, data["problems"])


async def _status_of_index(room: AgentWorkspace, index: MemoryIndex) -> dict[str, Any]:
    import anyio.to_thread

    from retinue.memory.scan import plan_sync
    from retinue.runtime.memory.session_memory import explain_embedder, index_path

    found = await index.status()
    plan = await anyio.to_thread.run_sync(plan_sync, index.store, index.library, 0)
    path = index_path(room)
    return {
        "agent": room.id,
        "backend": found.backend,
        "provider": found.provider,
        "model": found.model,
        "chosen": explain_embedder(room),
        "fallback": found.fallback,
        "files": found.totals.files,
        "chunks": found.totals.chunks,
        "embedded": found.totals.embedded,
        "dirty": bool(plan.suspects or plan.removed),
        "lastSync": found.synced_at,
        "path": str(path),
        "bytes": path.stat().st_size,
        "problems": _list_problems(plan.problems),
    }


async def _status_of_qmd(room: AgentWorkspace, memory: QmdMemory) -> dict[str, Any]:
    found = await memory.status()
    path = memory.index.program.folders.database
    return {
        "agent": room.id,
        "backend": found.backend,
        "reason": found.reason,
        "program": found.version,
        "searchMode": found.mode,
        "collections": list(found.collections),
        "files": found.files,
        "dirty": found.dirty,
        "lastSync": found.synced_at,
        "path": str(path),
        "bytes": path.stat().st_size if path.exists() else 0,
        "problems": _list_problems(found.problems),
    }


@memory.command()
@_AGENT
@click.option("--force", is_flag=True, help="Rebuild the index from all notes.")
@pass_invocation
def index(invocation: Invocation, agent: str | None, force: bool) -> None:
    """Update the index."""

    async def bring(room: AgentWorkspace, found: AnyMemory) -> dict[str, Any]:
        from retinue.memory.embed_texts import BatchUse

        with ProgressBar(invocation) as bar:
            report = await found.sync(force=force, use=BatchUse.WAIT, progress=bar.show)
        return {
            "agent": room.id,
            "backend": report.backend,
            "files": report.totals.files,
            "chunks": report.totals.chunks,
            "changed": report.changed,
            "removed": report.removed,
            "embedded": report.embedded,
            "waiting": report.waiting,
            "reason": report.reason,
            "insteadOf": report.instead_of,
            "notes": list(report.notes),
            "problems": _list_problems(report.problems),
        }

    data = _with_memory(invocation, agent, bring)
    changes = f"{data['changed']} changed, {data['removed']} removed"
    if data["backend"] == "qmd":
        invocation.show(data, f"{count(data['files'], 'file')} in QMD: {changes}.")
    else:
        held = f"{count(data['files'], 'file')}, {count(data['chunks'], 'chunk')}"
        invocation.show(data, f"{held}: {changes}, {data['embedded']} embedded.")
    if data["reason"]:
        invocation.note(data["reason"] if data["insteadOf"] else f"Words only: {data['reason']}")
    for note in data["notes"]:
        invocation.note(note)
    _note_problems(invocation, data["problems"])


def _search_options(command: Any) -> Any:
    for option in (
        click.argument("query"),
        _AGENT,
        click.option("--max", "most", type=click.IntRange(1, 50), help="Maximum number of results."),
        click.option("--min-score", type=click.FloatRange(0, 1), help="Minimum score."),
    ):
        command = option(command)
    return command


@memory.command()
@_search_options
@click.option("--explain", is_flag=True, help="Show the parts of each score.")
@pass_invocation
def search(
    invocation: Invocation, query: str, agent: str | None, most: int | None, min_score: float | None, explain: bool
) -> None:
    """Search notes for QUERY."""
    found = _search(invocation, query, agent, most, min_score)
    _show_hits(invocation, found, explain=explain)


@memory.command()
@_search_options
@pass_invocation
def explain(invocation: Invocation, query: str, agent: str | None, most: int | None, min_score: float | None) -> None:
    """Search notes for QUERY and explain each score."""
    found = _search(invocation, query, agent, most, min_score)
    _show_hits(invocation, found, explain=True)


@memory.command("get")
@click.argument("path")
@_AGENT
@click.option("--from", "start", type=click.IntRange(1), default=1, help="First line.")
@click.option("--lines", type=click.IntRange(1), help="Maximum number of lines.")
@pass_invocation
def get_note(invocation: Invocation, path: str, agent: str | None, start: int, lines: int | None) -> None:
    """Print lines of a note."""

    async def read(room: AgentWorkspace, found: AnyMemory) -> dict[str, Any]:
        limits = room.settings.context_limits
        shown = lines or limits.memory_get_default_lines
        excerpt = await found.read(path, start, shown, max_chars=limits.memory_get_max_chars)
        data: dict[str, Any] = {
            "path": excerpt.path,
            "text": excerpt.text,
            "from": excerpt.start_line,
            "lines": excerpt.lines,
        }
        return data | ({"truncated": True, "nextFrom": excerpt.next_line} if excerpt.next_line else {})

    data = _with_memory(invocation, agent, read)
    invocation.show(data, data["text"], exact=True)
    if "nextFrom" in data:
        invocation.note(f"More lines follow: --from {data['nextFrom']}")


@memory.group("standing")
def standing() -> None:
    """Instructions and preferences that apply to every answer."""


@standing.command("list")
@_AGENT
@pass_invocation
def list_facts(invocation: Invocation, agent: str | None) -> None:
    """List the instructions and preferences in the notes."""

    async def collect(_room: AgentWorkspace, opened: AnyMemory) -> list[dict[str, Any]]:
        from msgspec.structs import asdict

        from retinue.memory.index import MemoryIndex

        index = opened if isinstance(opened, MemoryIndex) else opened.builtin
        with ProgressBar(invocation) as bar:
            await index.sync(progress=bar.show)
        return [asdict(fact) for fact in await index.standing()]

    facts = _with_memory(invocation, agent, collect)
    rows = [(fact["kind"], f"{fact['path']}#L{fact['line']}", fact["text"]) for fact in facts]
    invocation.show(facts, lambda: table(rows) if rows else "No standing instructions or preferences.")


@standing.command("add")
@click.argument("text")
@_AGENT
@pass_invocation
def add_standing(invocation: Invocation, text: str, agent: str | None) -> None:
    """Add TEXT as an instruction or preference."""
    from retinue.runtime.memory.standing_notes import add_fact

    added = _in_workspace(invocation, agent, lambda room: add_fact(room, text))
    invocation.show({"added": added}, "Added." if added else "It is there already.")


@standing.command("remove")
@click.argument("line", type=click.IntRange(1))
@_AGENT
@pass_invocation
def remove_standing(invocation: Invocation, line: int, agent: str | None) -> None:
    """Remove the item on LINE of memory/standing.md."""
    from retinue.runtime.memory.standing_notes import remove_fact

    path = _in_workspace(invocation, agent, lambda room: remove_fact(room, line))
    invocation.show({"path": path, "removed": line}, f"Removed line {line} of {path}.")


def _in_workspace(invocation: Invocation, agent: str | None, work: Callable[[AgentWorkspace], T]) -> T:
    from retinue.runtime.agents.workspace import open_workspace
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    with open_workspace(home, home.agent_id(agent)) as room:
        return work(room)


def _with_memory(
    invocation: Invocation, agent: str | None, work: Callable[[AgentWorkspace, AnyMemory], Awaitable[T]]
) -> T:
    import anyio

    from retinue.core.errors import UsageError
    from retinue.runtime.agents.workspace import open_workspace
    from retinue.runtime.home import load_home
    from retinue.runtime.memory.session_memory import open_memory

    async def run() -> T:
        home = load_home(invocation.home)
        with open_workspace(home, home.agent_id(agent)) as room:
            if not room.settings.memory_search.enabled:
                raise UsageError(
                    f"Agent '{room.id}' has memory search disabled. Set agents.defaults.memorySearch.enabled."
                )
            async with open_memory(room) as opened:
                return await work(room, opened)

    return anyio.run(run)


def _search(
    invocation: Invocation, query: str, agent: str | None, most: int | None, min_score: float | None
) -> SearchResult:
    async def find(room: AgentWorkspace, opened: AnyMemory) -> SearchResult:
        import anyio

        from retinue.memory.search.rules import with_limits
        from retinue.runtime.memory.backend_choice import memory_backend

        # A person at a prompt waits for the whole index rather than search half of it, but not for a hanging program.
        settings = room.home.config.memory.qmd.update
        limit = settings.command_timeout_ms / 1000 if memory_backend(room.home) == "qmd" else None
        with ProgressBar(invocation) as bar, anyio.move_on_after(limit) as deadline:
            await opened.sync(progress=bar.show)
        rules = with_limits(opened.rules, max_results=most, min_score=min_score)
        seconds = room.settings.memory_search.query.timeout_ms / 1000
        return await opened.search(query, rules=rules, seconds=seconds, refresh=deadline.cancelled_caught)

    return _with_memory(invocation, agent, find)


def _show_hits(invocation: Invocation, found: SearchResult, *, explain: bool) -> None:
    data = [_describe(hit, explain=explain) for hit in found.hits]
    invocation.show(data, lambda: "\n\n".join(_format_hit(hit, explain=explain) for hit in found.hits) or "No results.")
    if found.reason:
        is_about_words = found.mode == "text" and found.instead_of is None
        invocation.note(f"Words only: {found.reason}" if is_about_words else found.reason)


def _describe(hit: MemoryHit, *, explain: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "path": hit.path,
        "startLine": hit.start_line,
        "endLine": hit.end_line,
        "score": hit.score,
        "snippet": hit.snippet,
        "source": hit.source,
    }
    if explain:
        data["explanation"] = {**_parts(hit), "matched": list(hit.matched), "origin": hit.origin.origin}
    return data


def _parts(hit: MemoryHit) -> dict[str, float]:
    parts = hit.parts
    return {
        "vector": round(parts.vector, 4),
        "text": round(parts.text, 4),
        "exact": round(parts.exact, 4),
        "decay": round(parts.decay, 4),
    }


def _format_hit(hit: MemoryHit, *, explain: bool) -> str:
    head = f"{hit.citation}  {hit.score:.2f}"
    if explain:
        parts = "  ".join(f"{name} {value:.2f}" for name, value in _parts(hit).items())
        words = ", ".join(hit.matched) or "none"
        head = f"{head}\n  {parts}\n  words: {words}; origin: {hit.origin.origin}"
    body = "\n".join(f"  {line}" for line in hit.snippet.split("\n"))
    return f"{head}\n{body}"


def _list_problems(problems: tuple[NoteProblem, ...]) -> list[dict[str, str]]:
    return [{"path": problem.path, "message": problem.message} for problem in problems]


def _note_problems(invocation: Invocation, problems: list[dict[str, str]]) -> None:
    for problem in problems[:_SHOWN_PROBLEMS]:
        invocation.note(f"{problem['path']}: {problem['message']}")
    if len(problems) > _SHOWN_PROBLEMS:
        invocation.note(f"… and {len(problems) - _SHOWN_PROBLEMS} more; --json lists them all.")
