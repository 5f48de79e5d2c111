"""`retinue sessions`: list, show, export and reset sessions.

Maintenance commands are in `sessions_maintenance`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import (
    Group,
    Invocation,
    agent_of_session,
    find_session,
    list_sessions_of,
    pass_invocation,
    print_store_notes,
    table,
)
from retinue.cli.sessions_maintenance import check, compact, import_sessions, prune, restore
from retinue.cli.terminal import echo, format_time

if TYPE_CHECKING:
    from retinue.sessions.entries import Header, TranscriptEntry
    from retinue.sessions.protocol import StoredSessions
    from retinue.sessions.session import Session

SHOWN = 20
LISTED = 100
TAIL_BYTES = 64 * 1024
STDOUT = "-"


@click.group(cls=Group)
def sessions() -> None:
    """A KEY is a session name such as `main` or `ideas`, or a full key such as agent:main:ideas."""


for _command in (compact, restore, import_sessions, check, prune):
    sessions.add_command(_command)


@sessions.command("list")
@click.option("--agent", metavar="ID", help="Only sessions of this agent.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=LISTED,
    show_default=True,
    help="Maximum number of sessions.",
)
@click.option("--offset", metavar="N", type=click.IntRange(min=0), default=0, help="Skip the N most recently used.")
@pass_invocation
def list_sessions(invocation: Invocation, agent: str | None, limit: int, offset: int) -> None:
    """List sessions, most recently used first."""
    from retinue.runtime.agents.workspace import open_sessions

    home = invocation.load_home()
    agents = (home.agent_id(agent),) if agent else home.config.agents.ids
    stores = {each: open_sessions(home, each) for each in agents}
    found = [session for store in stores.values() for session in list_sessions_of(store)]
    for store in stores.values():
        print_store_notes(invocation, store)
    found.sort(key=lambda session: session.updated_at, reverse=True)
    shown = found[offset : offset + limit]
    rows = [_summarise(each, _last_model(stores[each.key.agent], each)) for each in shown]
    if offset + limit < len(found):
        first, last = offset + 1, offset + len(shown)
        invocation.note(f"Sessions {first:,} to {last:,} of {len(found):,}; `--offset {last}` lists the next ones.")
    invocation.show(rows, lambda: _format_rows(rows) if found else "There are no sessions yet.")


def _last_model(store: StoredSessions, session: Session) -> str | None:
    """Return the model of the last answer of a session; only the end of its transcript is read."""
    from retinue.core.errors import StorageError
    from retinue.core.messages import AssistantMessage

    if session.model is not None:
        return None
    try:
        messages = store.read_end(session.id, TAIL_BYTES)[0].messages
    except StorageError:
        return None
    return next((each.model for each in reversed(messages) if isinstance(each, AssistantMessage)), None) or None


def _summarise(session: Session, answered: str | None) -> dict[str, Any]:
    """Format a session as a row; its model is the selected one, otherwise the most recent."""
    usage = session.usage
    row = {
        "key": str(session.key),
        "sessionId": session.id,
        "agent": session.key.agent,
        "label": session.label,
        "messages": session.messages,
        "compactions": session.compactions,
        "contextTokens": session.context_tokens,
        "usage": {
            "input": usage.input,
            "output": usage.output,
            "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write,
            "total": usage.total,
            "cost": usage.cost,
        },
        "startedAt": session.started_at.isoformat(),
        "updatedAt": session.updated_at.isoformat(),
        "model": str(session.model) if session.model else answered,
    }
    if session.flushed_at:
        row |= {"memoryFlushAt": session.flushed_at.isoformat(), "memoryFlushCompactionCount": session.flushed_in}
    return row


def _format_rows(rows: list[dict[str, Any]]) -> str:
    from datetime import datetime

    from retinue.security.untrusted_text import literal

    return table(
        [
            (
                row["key"],
                literal(row["label"] or "", 40),
                row["messages"],
                f"{row['usage']['total']:,}",
                f"${row['usage']['cost']:.4f}" if row["usage"]["cost"] else "-",
                format_time(datetime.fromisoformat(row["updatedAt"])),
                literal(row["model"] or "-"),
            )
            for row in rows
        ],
        header=("session", "label", "messages", "tokens", "cost", "last activity", "model"),
    )


@sessions.command()
@click.argument("key")
@agent_of_session
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=SHOWN,
    show_default=True,
    help="Maximum number of entries.",
)
@pass_invocation
def show(invocation: Invocation, key: str, agent: str | None, limit: int) -> None:
    """Print the last messages of a session; secrets are redacted."""
    import json

    from retinue.security.untrusted_text import passage
    from retinue.sessions.export import export_json, export_markdown

    home = invocation.load_home()
    session, store = find_session(invocation, home, key, agent)
    header, entries = _read(store, session)
    last = _last_messages(entries, limit)
    redact = home.redactor
    if session.messages > limit:
        invocation.note(f"The last {limit} of {session.messages} messages; `--limit N` shows more.")
    if invocation.as_json:
        lines = json.loads(_replace_surrogates(export_json(header, last, redact=redact)))["entries"]
        messages = [line for line in lines if line.get("type") == "message"]
        invocation.show(_summarise(session, None) | {"messages": messages, "total": session.messages}, "")
        return
    # What tools and web pages left in a session could otherwise drive the terminal.
    click.echo(passage(export_markdown(header, last, redact=redact)), nl=False)


def _last_messages(entries: tuple[TranscriptEntry, ...], limit: int) -> tuple[TranscriptEntry, ...]:
    """Return the entries from the `limit`-th last message on."""
    from retinue.sessions.entries import MessageAdded

    places = [at for at, entry in enumerate(entries) if isinstance(entry.body, MessageAdded)]
    return entries if len(places) <= limit else entries[places[-limit] :]


@sessions.command()
@click.argument("key")
@agent_of_session
@click.option("--format", "form", type=click.Choice(["md", "json"]), default="md", help="Markdown or JSON.")
@click.option("--output", metavar="FILE", default=STDOUT, help="Output file; `-`, the default, is standard output.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@pass_invocation
def export(invocation: Invocation, key: str, agent: str | None, form: str, output: str, force: bool) -> None:
    """Write a session to FILE or standard output; secrets are redacted."""
    import json

    from retinue.sessions.export import export_json, export_markdown

    home = invocation.load_home()
    session, store = find_session(invocation, home, key, agent)
    header, entries = _read(store, session)
    write = export_json if form == "json" else export_markdown
    text = _replace_surrogates(write(header, entries, redact=home.redactor))
    about = {"key": str(session.key), "format": form}
    if output != STDOUT:
        from retinue.runtime.inspect.file_labels import label_export

        place = Path(output).expanduser().absolute()
        label_export(home, place, entries)
        path = _write_new(place, text, force=force)
        invocation.show(about | {"file": str(path)}, f"Wrote {session.key} to {path}")
    elif invocation.as_json:
        invocation.show(about | {"content": json.loads(text) if form == "json" else text}, "")
    else:
        echo(text, nl=False, exact=True)


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which models can produce, so that the text can be encoded."""
    return text.encode("utf-8", "replace").decode()


def _write_new(path: Path, text: str, *, force: bool) -> Path:
    from retinue.core.errors import UsageError
    from retinue.storage.files import write_atomic

    path = path.expanduser().absolute()
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {path.parent}. Create it first, or choose another file.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Name a file in it.")
    if path.exists() and not force:
        raise UsageError(f"{path} already exists. Choose another file, or replace it with --force.")
    write_atomic(path, text.encode())
    return path


@sessions.command()
@click.argument("key")
@agent_of_session
@pass_invocation
def reset(invocation: Invocation, key: str, agent: str | None) -> None:
    """Archive a session and start a new one under its key; its settings, such as the model, are kept."""
    session, store = find_session(invocation, invocation.load_home(), key, agent)
    new = store.reset(session.key)
    kept = next(each.location for each in reversed(store.archives()) if each.name.startswith(f"{session.id}."))
    invocation.show(
        {
            "key": str(session.key),
            "sessionId": new.id,
            "archivedSessionId": session.id,
            "archived": kept,
        },
        f"{session.key} was reset. The old transcript is kept in {kept}",
    )


def _read(store: StoredSessions, session: Session) -> tuple[Header | None, tuple[TranscriptEntry, ...]]:
    header, tree = store.read(session.id)
    return header, tree.path
