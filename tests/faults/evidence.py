"""What is left on disk after a run, and whether it keeps the promise about data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from retinue.core.clock import SystemClock
from retinue.core.keys import DEFAULT_AGENT, RunId
from retinue.core.messages import ToolResult, UserMessage
from retinue.dispatch.inbox import Inbox
from retinue.sessions.entries import CallStarted, MessageAdded, TranscriptEntry
from retinue.sessions.store import SessionStore
from retinue.sessions.transcript import read_whole
from retinue.storage.database import SqliteDatabase
from retinue.storage.home_paths import HomePaths
from tests.faults.server import TASK


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a run left behind."""

    accepted: dict[RunId, str]
    """Acknowledged messages: their runs and tasks."""
    unanswered: tuple[str, ...]
    """Acknowledged messages that have no outcome, and rows that are still open."""
    kept: tuple[str, ...]
    """The tasks of all messages that the inbox holds, in the order of acceptance."""
    transcripts: dict[str, tuple[TranscriptEntry, ...]]
    """By file name, archived ones too."""
    unreadable: tuple[str, ...]
    """Transcripts that do not open."""
    effects: tuple[tuple[str, str], ...]
    """Call and task of each effect, in order."""

    @property
    def said(self) -> list[str]:
        """The tasks that people gave, as the transcripts have them, in order."""
        return [
            task
            for entry in self.entries
            if isinstance(entry.body, MessageAdded) and isinstance(entry.body.message, UserMessage)
            for task in TASK.findall(entry.body.message.text)
        ]

    @property
    def entries(self) -> Iterator[TranscriptEntry]:
        for entries in self.transcripts.values():
            yield from entries

    @property
    def violations(self) -> list[str]:
        return [*self._lost(), *self._repeated(), *self.unreadable, *self.unanswered]

    def _lost(self) -> Iterator[str]:
        times = Counter(self.said)
        for run, task in self.accepted.items():
            if times[task] != 1:
                yield f"{task} ({run}) was acknowledged and stands {times[task]} times in the transcripts"

    def _repeated(self) -> Iterator[str]:
        started = {entry.body.call_id for entry in self.entries if isinstance(entry.body, CallStarted)}
        for call, times in Counter(call for call, _ in self.effects).items():
            if times > 1:
                yield f"call {call} took effect {times} times"
            if call not in started:
                yield f"call {call} took effect and is in no transcript"
        for task, times in Counter(task for _, task in self.effects).items():
            if times > 1:
                yield f"{task} took effect {times} times"

    @property
    def interrupted(self) -> set[str]:
        """The calls whose result says that they were interrupted."""
        return {
            entry.body.message.call_id
            for entry in self.entries
            if isinstance(entry.body, MessageAdded)
            and isinstance(entry.body.message, ToolResult)
            and entry.body.message.text.startswith("interrupted:")
        }


def gather(home: HomePaths, outputs: Iterable[Path], ledger: Path) -> Evidence:
    """Read everything; to be called when no client runs any more."""
    accepted = dict(_acknowledged(outputs))
    kept, unanswered = _inbox(home, accepted)
    transcripts, unreadable = _transcripts(home)
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    effects = tuple((call, task) for call, _, task in (line.partition(" ") for line in lines))
    return Evidence(accepted, unanswered, kept, transcripts, unreadable, effects)


def _acknowledged(outputs: Iterable[Path]) -> Iterator[tuple[RunId, str]]:
    for output in outputs:
        for line in output.read_text().splitlines():
            match line.split():
                case ["accepted", run, task]:
                    yield RunId(run), task


def _inbox(home: HomePaths, accepted: dict[RunId, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    database = SqliteDatabase(home.path / "state.sqlite")
    try:
        inbox = Inbox(database, SystemClock())
        rows = database.read("SELECT payload, state FROM inbox ORDER BY id")
        kept = [task for row in rows for task in TASK.findall(row["payload"])]
        open_rows = [f"a message is still {row['state']}" for row in rows if row["state"] in ("waiting", "claimed")]
        without = [f"{task} has no outcome" for run, task in accepted.items() if inbox.outcome(run) is None]
        return tuple(kept), (*open_rows, *without)
    finally:
        database.close()


def _transcripts(home: HomePaths) -> tuple[dict[str, tuple[TranscriptEntry, ...]], tuple[str, ...]]:
    folder = home.sessions(DEFAULT_AGENT)
    store = SessionStore(folder, SystemClock())
    unreadable = [
        f"the session {session.key} has no header" for session in store.list() if not store.open(session.key).header
    ]
    found = {}
    for path in sorted(folder.glob("*.jsonl*")):
        if ".torn." in path.name:
            continue
        header, tree = read_whole(path)
        if header is None:
            unreadable.append(f"{path.name} does not open")
        found[path.name] = tree.path
    return found, tuple(unreadable)
