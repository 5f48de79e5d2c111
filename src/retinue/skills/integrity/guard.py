"""Verification of skills when they are loaded: their files are compared by stamp, and hashed if one changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from retinue.core.errors import SkillError
from retinue.skills.integrity.contents import digest_of, hash_files, read_folder, stamp_folder
from retinue.skills.integrity.lock import LOCK_NAME, LockedSkill, SkillLock, folder_key, read_lock
from retinue.skills.skill import Skill, SkillTier
from retinue.storage.files.file_info import Stamp, is_fresh, stamp_path

_TRUSTED = frozenset((SkillTier.BUNDLED, SkillTier.EXPLICIT, SkillTier.PLUGIN))
_OWNERS = frozenset((SkillTier.WORKSPACE, SkillTier.PERSONAL, SkillTier.MANAGED))
"""The tiers in which the owner writes skills, and an agent that has the right to."""
_REGISTRY_MARK = Path(".clawhub") / "origin.json"
NEW = "new, and not accepted yet: see `retinue skills diff {name}`, then `retinue skills accept {name}`"
WRITTEN = (
    "written or changed by the agent, and not accepted yet: see `retinue skills diff {name}`, then "
    "`retinue skills accept {name}`"
)
CHANGED = (
    "changed since it was accepted: see `retinue skills diff {name}`, then `retinue skills accept {name}` "
    "or `retinue skills rollback {name}`"
)


WrittenFolders = Callable[[Sequence[Path]], frozenset[Path]]
"""Returns those of the folders in which an agent wrote."""


class SkillGuard:
    """Decides which skills may be used. With `review_all`, skills in the person's own folders are reviewed too.

    What an agent wrote there is reviewed in any case; `find_written` tells the folders.
    """

    def __init__(self, home: Path, *, review_all: bool = False, find_written: WrittenFolders | None = None) -> None:
        self._home = home
        self._review_all = review_all
        self._find_written = find_written
        self._digests: dict[Path, tuple[dict[str, Stamp], str | SkillError]] = {}

    def check(self, skills: Sequence[Skill]) -> tuple[tuple[Skill, ...], dict[str, Stamp]]:
        """Return the skills, those that are off with the reason, and the stamps that show a later change."""
        lock_path = str(self._home / LOCK_NAME)
        stamps: dict[str, Stamp] = {lock_path: stamp_path(lock_path)}
        try:
            lock, damage = read_lock(self._home), ""
        except SkillError as error:
            lock, damage = SkillLock(), str(error)
        written = self._list_written([skill.folder for skill in skills if skill.tier in _OWNERS])
        checked = []
        for skill in skills:
            entry = lock.skills.get(folder_key(self._home, skill.folder)) if lock.skills else None
            by_agent = skill.folder in written
            if skill.tier in _TRUSTED or (
                entry is None and not damage and not by_agent and not self._needs_review(skill)
            ):
                checked.append(skill)
                if skill.tier in _OWNERS and self._find_written is not None:
                    stamps |= stamp_folder(skill.folder)  # the agent may change a script of it
                continue
            held = damage or self._judge(skill, entry, stamps, by_agent=by_agent)
            checked.append(replace(skill, held=held) if held else skill)
        self._digests = {folder: known for folder, known in self._digests.items() if str(folder) in stamps}
        return tuple(checked), stamps

    def _needs_review(self, skill: Skill) -> bool:
        return self._review_all or skill.tier is SkillTier.PROJECT or (skill.folder / _REGISTRY_MARK).exists()

    def _list_written(self, folders: list[Path]) -> frozenset[Path]:
        return self._find_written(folders) if self._find_written is not None else frozenset()

    def _judge(self, skill: Skill, entry: LockedSkill | None, stamps: dict[str, Stamp], *, by_agent: bool) -> str:
        """Return why the skill is off, or nothing."""
        digest = self._digest(skill.folder, stamps)
        if isinstance(digest, SkillError):
            return str(digest)
        if entry is not None and digest in (entry.accepted, entry.next):
            return ""
        unknown = WRITTEN if by_agent else NEW
        return (CHANGED if entry is not None and entry.accepted else unknown).format(name=skill.name)

    def _digest(self, folder: Path, stamps: dict[str, Stamp]) -> str | SkillError:
        now = stamp_folder(folder)
        stamps |= now
        known = self._digests.get(folder)
        if known is not None and known[0] == now:
            return known[1]
        result: str | SkillError
        try:
            result = digest_of(hash_files(read_folder(folder)))
        except SkillError as error:
            result = error
        except OSError as error:
            result = SkillError(f"A file of it cannot be read: {error.strerror}.")
        ended = time.time_ns()
        if not any(is_fresh(stamp, ended, ended) for stamp in now.values()):
            self._digests[folder] = now, result
        return result
