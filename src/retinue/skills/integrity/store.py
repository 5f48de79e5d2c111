"""Installed skills: replacing a skill's folder in one step, its versions, and the lock.

A change is in five steps, each of which can be the last: the new version is stored, the lock names it as the next one,
the folder is prepared beside its place, the folders are exchanged, the lock names the new version alone. After a crash
the folder has the old or the new content, and the lock accepts both.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock, random_uuid
from retinue.core.errors import SkillError
from retinue.skills.integrity.contents import SkillContent, digest_of, hash_files, read_folder
from retinue.skills.integrity.lock import (
    LOCK_NAME,
    KeptVersion,
    LockedSkill,
    SkillLock,
    SkillOrigin,
    folder_key,
    read_lock,
    write_lock,
)
from retinue.skills.integrity.unpack import check_names
from retinue.storage.files.descriptors import FOLDER, make_private_dir, sync_folder, write_all

VERSIONS = "skill-versions"
STAGING = ".retinue-staging-"
_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def _no_fault(_step: str) -> None:
    pass


class SkillStore(Struct, frozen=True):
    """The installed skills of a home. `reached` is called after each step; tests end the process there."""

    home: Path
    clock: Clock
    reached: Callable[[str], None] = _no_fault

    def find(self, folder: Path) -> LockedSkill | None:
        return read_lock(self.home).skills.get(folder_key(self.home, folder))

    def install(
        self, folder: Path, files: Mapping[str, SkillContent], origin: SkillOrigin, *, accept: bool
    ) -> LockedSkill:
        """Put a skill in its folder, or replace the one that is there; raise `SkillError` if that one is pinned."""
        check_names(files)
        if "SKILL.md" not in files:
            raise SkillError("It contains no SKILL.md at its top, so it is not a skill. Nothing was installed.")
        with self._exclusive() as lock:
            before = lock.skills.get(folder_key(self.home, folder))
            if before is not None and before.pinned:
                why = f" ({before.pin_reason})" if before.pin_reason else ""
                raise SkillError(f"'{before.name}' is pinned{why}. Run `retinue skills unpin {before.name}` first.")
            if folder.exists():
                self._save_version(read_folder(folder))
            return self._place(lock, folder, files, origin, accept=accept)

    def accept(self, folder: Path, expected: str = "") -> LockedSkill:
        """Accept the present content of a skill; with `expected`, only if it is the content with this digest."""
        with self._exclusive() as lock:
            files = read_folder(folder)
            hashes = hash_files(files)
            digest = digest_of(hashes)
            if expected and digest != expected:
                raise SkillError(f"'{folder.name}' changed while it was reviewed. Look at the differences again.")
            self._save_version(files)
            known = lock.skills.get(folder_key(self.home, folder)) or LockedSkill(folder.name)
            entry = self._settle(known, digest, known.origin.version, accept=True)
            return self._write(lock, folder, replace(entry, files=hashes))

    def rollback(self, folder: Path, to: str = "") -> LockedSkill:
        """Restore the version before the accepted one, or the one named by its digest or version."""
        with self._exclusive() as lock:
            known = lock.skills.get(folder_key(self.home, folder))
            if known is None:
                raise SkillError(f"No versions of '{folder.name}' are stored, because it was never accepted.")
            chosen = _choose(known, to, self._digest_now(folder))
            files = read_folder(self._version_path(chosen.digest))
            if digest_of(hash_files(files)) != chosen.digest:
                raise SkillError(f"The stored version {chosen.digest[:12]} is damaged. Choose another with --to.")
            if folder.exists():
                self._save_version(read_folder(folder))
            origin = replace(known.origin, version=chosen.version)
            return self._place(lock, folder, files, origin, accept=True)

    def remove(self, folder: Path) -> None:
        """Remove a skill; its versions are kept."""
        with self._exclusive() as lock:
            if folder.exists():
                self._save_version(read_folder(folder))
            aside = folder.parent / f"{STAGING}{random_uuid()}"
            if folder.exists():
                folder.rename(aside)
            self.reached("moved aside")
            skills = {key: entry for key, entry in lock.skills.items() if key != folder_key(self.home, folder)}
            write_lock(self.home, SkillLock(skills=skills))
            shutil.rmtree(aside, ignore_errors=True)

    def pin(self, folder: Path, *, pinned: bool, reason: str = "") -> LockedSkill:
        """Refuse updates of a skill, or allow them again."""
        with self._exclusive() as lock:
            known = lock.skills.get(folder_key(self.home, folder))
            if known is None:
                raise SkillError(f"'{folder.name}' is not in {LOCK_NAME}. Accept it first.")
            return self._write(lock, folder, replace(known, pinned=pinned, pin_reason=reason if pinned else ""))

    def accepted_files(self, folder: Path) -> dict[str, SkillContent]:
        """Return the accepted content of a skill; empty if none was accepted."""
        known = self.find(folder)
        if known is None or not known.accepted or not self._version_path(known.accepted).is_dir():
            return {}
        return read_folder(self._version_path(known.accepted))

    def _place(
        self, lock: SkillLock, folder: Path, files: Mapping[str, SkillContent], origin: SkillOrigin, *, accept: bool
    ) -> LockedSkill:
        hashes = hash_files(files)
        digest = digest_of(hashes)
        self._save_version(files)
        self.reached("version stored")
        key = folder_key(self.home, folder)
        known = lock.skills.get(key) or LockedSkill(folder.name)
        pending = replace(known, next=digest if accept else "", next_origin=origin if accept else None)
        lock = SkillLock(skills=lock.skills | {key: pending})
        write_lock(self.home, lock)
        self.reached("lock prepared")
        make_private_dir(folder.parent)
        staging = folder.parent / f"{STAGING}{random_uuid()}"
        _write_folder(staging, files, self.reached)
        self.reached("folder prepared")
        _swap(staging, folder)
        self.reached("folders exchanged")
        entry = replace(self._settle(known, digest, origin.version, accept=accept), origin=origin, files=hashes)
        self._write(lock, folder, entry)
        self.reached("lock written")
        shutil.rmtree(staging, ignore_errors=True)
        return entry

    def _settle(self, known: LockedSkill, digest: str, version: str, *, accept: bool) -> LockedSkill:
        kept = KeptVersion(digest, self.clock.now().isoformat(), version, accept)
        others = tuple(each for each in known.versions if each.digest != digest)
        accepted = digest if accept else known.accepted
        return replace(known, installed=digest, accepted=accepted, next="", next_origin=None, versions=(*others, kept))

    def _write(self, lock: SkillLock, folder: Path, entry: LockedSkill) -> LockedSkill:
        write_lock(self.home, SkillLock(skills=lock.skills | {folder_key(self.home, folder): entry}))
        return entry

    def _digest_now(self, folder: Path) -> str:
        return digest_of(hash_files(read_folder(folder))) if folder.exists() else ""

    def _version_path(self, digest: str) -> Path:
        return self.home / VERSIONS / digest

    def _save_version(self, files: Mapping[str, SkillContent]) -> None:
        place = self._version_path(digest_of(hash_files(files)))
        if place.is_dir():
            return
        make_private_dir(place.parent)
        staging = place.parent / f"{STAGING}{random_uuid()}"
        _write_folder(staging, files, _no_fault)
        staging.rename(place)

    @contextmanager
    def _exclusive(self) -> Iterator[SkillLock]:
        """Hold the lock against other processes, and finish what one that was killed began."""
        make_private_dir(self.home)
        descriptor = os.open(self.home / f"{LOCK_NAME}.flock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            lock = self._recover(read_lock(self.home))
            yield lock
        finally:
            os.close(descriptor)

    def _recover(self, lock: SkillLock) -> SkillLock:
        recovered = dict(lock.skills)
        roots = {self.home / VERSIONS, self.home / "skills"}
        for key, entry in lock.skills.items():
            folder = self.home / key
            roots.add(folder.parent)
            if entry.next and self._digest_now(folder) == entry.next:
                origin = entry.next_origin or entry.origin
                settled = self._settle(entry, entry.next, origin.version, accept=True)
                recovered[key] = replace(settled, origin=origin, files=hash_files(read_folder(folder)))
            elif entry.next:
                recovered[key] = replace(entry, next="", next_origin=None)
            if not entry.accepted and not folder.exists():
                del recovered[key]
        for root in roots:
            for left in root.glob(f"{STAGING}*"):
                shutil.rmtree(left, ignore_errors=True)
        return SkillLock(skills=recovered)


def _choose(known: LockedSkill, to: str, present: str) -> KeptVersion:
    accepted = [each for each in known.versions if each.accepted]
    if to:
        found = [each for each in known.versions if to in (each.version, each.digest) or _is_prefix(to, each.digest)]
    else:
        # A changed folder goes back to what was accepted last, an unchanged one to the version before it.
        found = [each for each in accepted if each.digest != present]
    if not found:
        listed = ", ".join(f"{each.version or '-'} ({each.digest[:12]})" for each in known.versions)
        raise SkillError(f"There is no such earlier version of '{known.name}'. Stored: {listed or 'none'}.")
    return found[-1]


def _is_prefix(text: str, digest: str) -> bool:
    return len(text) >= 8 and digest.startswith(text.removeprefix("sha256:"))


def _write_folder(place: Path, files: Mapping[str, SkillContent], reached: Callable[[str], None]) -> None:
    place.mkdir(0o700)
    for name, file in files.items():
        path = place / name
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o700 if file.executable else 0o600)
        try:
            write_all(descriptor, file.data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        reached("file written")
    _sync(place)


def _swap(staging: Path, folder: Path) -> None:
    """Exchange two folders in one step; without that call of the system, the old one is moved away first."""
    if not folder.exists():
        staging.rename(folder)
    elif (number := _exchange(staging, folder)) in _UNSUPPORTED:
        aside = folder.parent / f"{STAGING}{random_uuid()}"
        folder.rename(aside)
        staging.rename(folder)
        aside.rename(staging)
    elif number:
        raise OSError(number, os.strerror(number))
    _sync(folder.parent)


def _exchange(one: Path, other: Path) -> int:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return errno.ENOSYS
    at = -100  # AT_FDCWD
    return ctypes.get_errno() if call(at, os.fsencode(one), at, os.fsencode(other), _EXCHANGE) else 0


def _sync(place: Path) -> None:
    descriptor = os.open(place, FOLDER)
    try:
        sync_folder(descriptor)
    finally:
        os.close(descriptor)
