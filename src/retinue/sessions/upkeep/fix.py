"""Fixing what a check found, without deleting a byte of a transcript."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from retinue.core.errors import RetinueError
from retinue.core.keys import SessionKey
from retinue.sessions.index import INDEX_NAME, move_aside
from retinue.sessions.jsonl.lines import fix_torn_end, open_regular
from retinue.sessions.repair import close_interrupted_turn
from retinue.sessions.store import SessionStore
from retinue.sessions.upkeep.check import CheckedTranscript, CheckReport, Remedy, TranscriptFinding
from retinue.storage.files.descriptors import PRIVATE_DIR, PRIVATE_FILE
from retinue.storage.files.errors import explained
from retinue.storage.lease import SessionLease

REASON = "a check found the turn interrupted"


def apply_fixes(
    report: CheckReport, store: SessionStore, lease_of: Callable[[SessionKey], SessionLease]
) -> tuple[str, ...]:
    """Apply the remedies of a report; return sentences that say what was done, or why it was not."""
    messages: list[str] = []
    pairs = [(finding, checked) for checked in report.transcripts for finding in checked.findings]
    pairs += [(finding, CheckedTranscript(store.folder)) for finding in report.folder]
    rebuild = False
    for finding, checked in pairs:
        if finding.remedy is Remedy.INDEX:
            rebuild = True
        elif finding.remedy is not None:
            messages.append(_apply_fix(finding, checked, store, lease_of))
    dependent = [checked.path.name for checked in report.transcripts if checked.depends_on_index]
    if rebuild and dependent:
        messages.append(f"The index is kept: only it knows the session of {', '.join(dependent)}. Import that first.")
    elif rebuild:
        messages.append(_rebuild_index(store))
    return tuple(messages)


def _apply_fix(
    finding: TranscriptFinding,
    checked: CheckedTranscript,
    store: SessionStore,
    lease_of: Callable[[SessionKey], SessionLease],
) -> str:
    name = finding.path.name
    try:
        match finding.remedy:
            case Remedy.PERMISSIONS:
                return _make_private(finding.path)
            case Remedy.END:
                aside = fix_torn_end(finding.path)
                return f"{name} ends with a whole line now." + (f" The torn end is in {aside.name}." if aside else "")
            case Remedy.TURN if checked.session is not None:
                key = checked.session.key
                with lease_of(key):
                    closed = close_interrupted_turn(store.open(key), REASON)
                return f"The interrupted turn of {key} was closed." if closed else f"{key} was closed already."
    except RetinueError as error:
        return f"{name} was not changed: {error}"
    return f"{name} was not changed: it belongs to no session."


def _make_private(path: Path) -> str:
    if path.is_dir():
        with explained(path.name, path.parent):
            path.chmod(PRIVATE_DIR)
        return f"Only you can list {path.name}/ now."
    with open_regular(path) as descriptor:
        os.fchmod(descriptor, PRIVATE_FILE)
    return f"Only you can read {path.name} now."


def _rebuild_index(store: SessionStore) -> str:
    """Rebuild the index; the old one is kept, because rows without a transcript are nowhere else."""
    index = store.folder / INDEX_NAME
    try:
        aside = move_aside(index) if index.exists() else None
        count = len(store.list())
    except RetinueError as error:
        return f"The index could not be rebuilt: {error}"
    kept = f" The old index is {aside.name}." if aside else ""
    return f"The index was rebuilt from the transcripts: {count} sessions.{kept}"
