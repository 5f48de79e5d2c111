"""The checkpoints of an agent's workspace: for each turn that changed files, their versions before and after.

```
<home>/checkpoints/<agent>/
  objects/<aa>/<sha256>   content of files, stored once
  index                   the version of every file at the last look
  open/<run>.json         turns that may be changing files; those of killed processes are closed at the next look
  done/<number>.json      turns that changed files
  restoring.json          a restore that is under way; one that was interrupted is completed at the next look
  lock  git/              the lock; an empty repository with which git lists files
```
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import StorageError, UsageError
from retinue.core.labels import Label
from retinue.storage.checkpoints.workspace_files import ContentLimits, FileVersion, Versions, scan
from retinue.storage.files import Root, make_private_dir, write_atomic
from retinue.storage.files.descriptors import PRIVATE_FILE
from retinue.storage.object_store import ObjectStore

_S = TypeVar("_S", bound=Struct)


class CheckpointLimits(Struct, frozen=True):
    """How much is kept."""

    max_bytes: int = 500 * 1024**2
    max_file_bytes: int = 10 * 1024**2
    max_age: timedelta = timedelta(days=14)


class FileChange(Struct, frozen=True):
    """A changed file: its version before and after; None if there was none. `label` says where its content is from."""

    path: str
    before: FileVersion | None = None
    after: FileVersion | None = None
    label: tuple[str, bool] | None = None


class Checkpoint(Struct, frozen=True):
    """What one turn changed; `undone` is true while its changes are undone."""

    id: int
    run: str
    session: str
    at: datetime
    changes: tuple[FileChange, ...] = ()
    undone: bool = False
    interrupted: bool = False


class _OpenTurn(Struct):
    """A turn that may be changing files; `pid` is its process."""

    run: str
    session: str
    at: datetime
    pid: int
    changes: dict[str, FileChange] = field(default_factory=dict)
    labels: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """The labels of files at its start: a removed file has none any more."""


class _Restoring(Struct, frozen=True):
    """A restore that was decided: the files, and the checkpoint that it undoes or repeats."""

    number: int
    undone: bool
    targets: dict[str, FileVersion | None]


class RestoredFiles(Struct, frozen=True):
    """The result of an undo, redo or restore: the files that were changed, and those that were not and why."""

    checkpoint: Checkpoint
    paths: tuple[str, ...]
    kept: Mapping[str, str]


Direction = Literal["undo", "redo"]
ListLabels = Callable[[], Mapping[str, Label]]
"""Returns the labels of all files that have one."""
CHANGED_SINCE = "it was changed since"
NOT_KEPT = "its content was too large to keep"


class CheckpointStore:
    """The checkpoints of one workspace. Several processes may use it; one at a time looks at the files."""

    def __init__(
        self, folder: Path, workspace: Path, limits: CheckpointLimits, labels: ListLabels | None = None
    ) -> None:
        self._folder = folder
        self._workspace = workspace
        self._limits = limits
        self._labels = labels or dict
        self._objects = ObjectStore(folder / "objects")

    def begin(self, run: str, session: str, now: datetime) -> None:
        """Record the present state, before the first call of a turn that may change files."""
        with self._looking(now):
            labels = {path: (label.origin, label.private) for path, label in self._labels().items()}
            self._write_open(_OpenTurn(run, session, now, os.getpid(), labels=labels))

    def end(self, run: str, now: datetime) -> Checkpoint | None:
        """Record what a turn changed; return None if it changed nothing."""
        with self._looking(now) as turns:
            turn = turns.get(run)
            done = self._close(turn, interrupted=False) if turn is not None else None
            self._prune(now)
        return done

    def history(self, session: str | None = None) -> tuple[Checkpoint, ...]:
        """Return the checkpoints, the newest first."""
        found = (_read(path, Checkpoint) for path in sorted(self._folder.glob("done/*.json"), reverse=True))
        return tuple(each for each in found if each is not None and session in (None, each.session))

    def get(self, number: int) -> Checkpoint:
        found = _read(self._path_of(number), Checkpoint)
        if found is None:
            raise UsageError(f"There is no checkpoint {number}. `retinue workspace history` lists them.")
        return found

    def read(self, version: FileVersion | None) -> bytes | None:
        """Return the content of a version; None if it is a link, was not kept, or there was no file."""
        return b"".join(self._objects.read(version.sha256)) if version is not None and version.sha256 else None

    def next_undo(self, session: str | None = None) -> Checkpoint:
        """Return the last turn that changed files and is not undone; raise `UsageError` if there is none."""
        found = next((each for each in self.history(session) if not each.undone), None)
        if found is None:
            raise UsageError("There is nothing to undo: no recorded turn changed files of the workspace.")
        return found

    def next_redo(self, session: str | None = None) -> Checkpoint:
        """Return the turn that was undone last; raise `UsageError` if there is none."""
        undone = [each for each in self.history(session) if each.undone]
        if not undone:
            raise UsageError("There is nothing to redo.")
        return undone[-1]

    def apply(self, checkpoint: Checkpoint, direction: Direction, now: datetime) -> RestoredFiles:
        """Restore the versions before a turn, or after it; files that changed since are left as they are."""
        with self._looking(now):
            known = self._read_index()
            targets: dict[str, FileVersion | None] = {}
            kept: dict[str, str] = {}
            for change in checkpoint.changes:
                old, new = (change.after, change.before) if direction == "undo" else (change.before, change.after)
                present = known.get(change.path)
                if _equal(present, new):
                    continue
                if not _equal(present, old):
                    kept[change.path] = CHANGED_SINCE
                elif new is not None and not new.is_kept:
                    kept[change.path] = NOT_KEPT
                else:
                    targets[change.path] = new
            plan = _Restoring(checkpoint.id, direction == "undo", targets)
            write_atomic(self._folder / "restoring.json", msgspec.json.encode(plan))
            kept |= self._complete(plan)
        done = tuple(path for path in targets if path not in kept)
        return RestoredFiles(self.get(checkpoint.id), done, kept)

    @contextmanager
    def _looking(self, now: datetime) -> Iterator[dict[str, _OpenTurn]]:
        """Hold the lock, complete what was interrupted, and bring the index up to date; yield the open turns."""
        make_private_dir(self._folder / "open")
        make_private_dir(self._folder / "done")
        make_private_dir(self._objects.folder)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            interrupted = _read(self._folder / "restoring.json", _Restoring)
            if interrupted is not None:
                self._complete(interrupted)
            yield self._look()
        finally:
            os.close(descriptor)

    def _look(self) -> dict[str, _OpenTurn]:
        """Find what changed since the last look, and add it to the open turns."""
        known = self._read_index()
        turns = [turn for path in self._folder.glob("open/*.json") if (turn := _read(path, _OpenTurn)) is not None]
        with Root.open(self._workspace) as root:
            present = self._scan(root, known)
        changed = [path for path, version in present.items() if not _equal(known.get(path), version)]
        changed += [path for path in known if path not in present]
        if changed and turns:
            labels = self._labels()
            for turn in turns:
                for path in changed:
                    first, label = turn.changes.get(path), labels.get(path)
                    found = (label.origin, label.private) if label else first.label if first else None
                    before = first.before if first else known.get(path)
                    turn.changes[path] = FileChange(path, before, present.get(path), turn.labels.get(path) or found)
                self._write_open(turn)
        if present != known:
            write_atomic(self._folder / "index", msgspec.msgpack.encode(present), synced=False)
        for turn in turns:
            if turn.pid != os.getpid() and not _is_alive(turn.pid):
                self._close(turn, interrupted=True)
        return {turn.run: turn for turn in turns}

    def _scan(self, root: Root, known: Versions) -> Versions:
        limits = ContentLimits(self._limits.max_bytes, self._limits.max_file_bytes)
        return scan(root, known, self._objects, self._folder, limits)

    def _close(self, turn: _OpenTurn, *, interrupted: bool) -> Checkpoint | None:
        changes = tuple(each for _, each in sorted(turn.changes.items()) if not _equal(each.before, each.after))
        done = None
        if changes:
            number = max((int(path.stem) for path in self._folder.glob("done/*.json")), default=0) + 1
            done = Checkpoint(number, turn.run, turn.session, turn.at, changes, interrupted=interrupted)
            write_atomic(self._path_of(number), msgspec.json.encode(done))
        with suppress(FileNotFoundError):
            self._open_path(turn.run).unlink()
        return done

    def _complete(self, plan: _Restoring) -> dict[str, str]:
        """Restore the files of a plan; may be repeated. Return those that could not be restored, and why."""
        failed: dict[str, str] = {}
        with Root.open(self._workspace) as root:
            # Links and files go first: another version may need a folder in their place.
            for path, version in sorted(plan.targets.items(), key=lambda item: item[1] is not None):
                try:
                    self._restore(root, path, version)
                except (StorageError, OSError) as error:
                    failed[path] = str(error)
            index = self._read_index()
            present = self._scan(root, index)
            write_atomic(self._folder / "index", msgspec.msgpack.encode(present))
        found = _read(self._path_of(plan.number), Checkpoint)
        if found is not None:
            write_atomic(self._path_of(plan.number), msgspec.json.encode(replace(found, undone=plan.undone)))
        with suppress(FileNotFoundError):
            (self._folder / "restoring.json").unlink()
        return failed

    def _restore(self, root: Root, path: str, version: FileVersion | None) -> None:
        is_link = (root.path / path).is_symlink()
        if version is None or version.target or is_link:
            with suppress(StorageError):
                root.remove(path)
        if version is None:
            _remove_empty_folders(root, path)
        elif version.target:
            root.link(path, version.target)
        else:
            data = self.read(version)
            assert data is not None, f"{path} has no content"
            root.write(path, data, mode=version.mode, keep_mode=False)

    def _prune(self, now: datetime) -> None:
        """Remove checkpoints that are too old, and the oldest if they need too much space."""
        every = self.history()
        kept: list[Checkpoint] = []
        size = 0
        for each in every:
            size += sum(version.size for change in each.changes for version in (change.before, change.after) if version)
            if now - each.at <= self._limits.max_age and (size <= self._limits.max_bytes or not kept):
                kept.append(each)
        if len(kept) == len(every):
            return
        for each in every:
            if each not in kept:
                self._path_of(each.id).unlink(missing_ok=True)
        self._objects.keep_only(self._used(kept))

    def _used(self, kept: Iterable[Checkpoint]) -> set[str]:
        turns = (turn for path in self._folder.glob("open/*.json") if (turn := _read(path, _OpenTurn)) is not None)
        changes = [
            *(change for each in kept for change in each.changes),
            *(c for t in turns for c in t.changes.values()),
        ]
        versions = [version for change in changes for version in (change.before, change.after) if version]
        return {version.sha256 for version in (*versions, *self._read_index().values())}

    def _read_index(self) -> Versions:
        try:
            return msgspec.msgpack.decode((self._folder / "index").read_bytes(), type=dict[str, FileVersion])
        except (OSError, msgspec.MsgspecError):
            return {}

    def _write_open(self, turn: _OpenTurn) -> None:
        write_atomic(self._open_path(turn.run), msgspec.json.encode(turn), synced=False)

    def _open_path(self, run: str) -> Path:
        return self._folder / "open" / f"{run}.json"

    def _path_of(self, number: int) -> Path:
        return self._folder / "done" / f"{number:08d}.json"


def _equal(one: FileVersion | None, other: FileVersion | None) -> bool:
    if one is other:  # most files
        return True
    return one.equals(other) if one is not None else other is None


def _remove_empty_folders(root: Root, path: str) -> None:
    """Remove the folders of a removed file that are empty now."""
    while "/" in path:
        path = path.rpartition("/")[0]
        try:
            root.remove(path)
        except StorageError:
            return


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _read(path: Path, kind: type[_S]) -> _S | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None
