"""Applying the fixes that an inspection proposes; none deletes data that a person may need."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import assert_never

from retinue.audit.finding import CreateWorkspace, Discard, Finding, FixSessions, Remedy, Restrict, SweepPresence
from retinue.core.errors import RetinueError
from retinue.runtime.agents.agent import locate_workspace, seed_agent
from retinue.runtime.agents.records import open_sessions
from retinue.runtime.home import Home
from retinue.sessions.check import apply_fixes, check_folder
from retinue.storage.files import make_private_dir
from retinue.storage.lease import SessionLease
from retinue.storage.presence import Presence


def carry_out(home: Home, findings: Iterable[Finding]) -> tuple[str, ...]:
    """Apply every fix once; return a sentence for each that says what was done, or why not."""
    remedies = dict.fromkeys(remedy for finding in findings for remedy in finding.remedies)
    results: list[str] = []
    for remedy in remedies:
        try:
            results += _apply(home, remedy)
        except OSError as error:
            results.append(f"{error.filename} was not changed: {error.strerror}.")
        except RetinueError as error:
            results.append(str(error))
    return tuple(results)


def _apply(home: Home, remedy: Remedy) -> Iterator[str]:
    match remedy:
        case Restrict(path, mode):
            # The same file that was inspected: a link that replaced it is not followed.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)
            yield f"Only you may read {path} now."
        case Discard(path):
            path.unlink()
            yield f"Removed {path}."
        case SweepPresence(folder):
            Presence(folder).sweep()
            yield f"Removed files of killed processes from {folder}."
        case FixSessions(agent):
            store = open_sessions(home, agent)
            yield from apply_fixes(check_folder(store.folder), store, partial(SessionLease, home.paths))
        case CreateWorkspace(agent):
            make_private_dir(home.paths.path)
            seed_agent(home, agent)
            yield f"Created the workspace of agent '{agent}' at {locate_workspace(home, agent)}."
        case _:
            assert_never(remedy)
