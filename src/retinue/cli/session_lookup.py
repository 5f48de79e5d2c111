"""Resolve session names given on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from retinue.cli.common import Invocation
    from retinue.core.keys import SessionKey
    from retinue.runtime.home import Home
    from retinue.sessions.session import Session
    from retinue.sessions.store import SessionStore

AGENT = click.option("--agent", metavar="ID", help="Return the agent of a session that is named without one.")


def find_session(invocation: Invocation, home: Home, text: str, agent: str | None) -> tuple[Session, SessionStore]:
    """Resolve a session name; raises `UsageError` if there is no such session, and creates nothing."""
    from retinue.core.errors import UsageError
    from retinue.runtime.agents.workspace import open_sessions

    key = home.session_key(text, agent)
    store = open_sessions(home, key.agent)
    found = store.find(key) if store.folder.is_dir() else None
    print_store_notes(invocation, store)
    if found is None:
        raise UsageError(f"There is no session '{key}'. {_near(key, list_sessions_of(store))}")
    return found, store


def _near(key: SessionKey, known: tuple[Session, ...]) -> str:
    from difflib import get_close_matches

    if not known:
        return f"The agent '{key.agent}' has no sessions yet."
    # The common prefix of all keys would make any two of them similar.
    start = f"agent:{key.agent}:"
    by_name = {str(session.key).removeprefix(start): str(session.key) for session in known}
    near = [by_name[name] for name in get_close_matches(str(key).removeprefix(start), by_name)]
    return f"Did you mean {' or '.join(near)}?" if near else f"Most recent: {', '.join([*by_name.values()][:5])}."


def list_sessions_of(store: SessionStore) -> tuple[Session, ...]:
    """List sessions without creating a folder for an agent that has none."""
    return store.list() if store.folder.is_dir() else ()


def print_store_notes(invocation: Invocation, store: SessionStore) -> None:
    for note in store.notes:
        invocation.note(note)
