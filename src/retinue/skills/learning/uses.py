"""How often skills are used, so that the owner can retire those that no conversation needs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.skills.skill import Skill, SkillTier
from retinue.storage.files.descriptors import make_private_dir, write_atomic

USES_NAME = "skill-uses.json"
UNUSED_AFTER = timedelta(days=60)


class SkillUse(Struct, frozen=True, rename="camel"):
    """How often a skill was used, and when last; `since` is when counting began."""

    since: str
    count: int = 0
    last: str = ""


def read_uses(home: Path) -> dict[str, SkillUse]:
    """Return the uses by the folder of each skill; a damaged file counts as none, since it only informs."""
    try:
        return msgspec.json.decode((home / USES_NAME).read_bytes(), type=dict[str, SkillUse])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def count_uses(home: Path, folders: Iterable[Path], now: datetime) -> None:
    """Count one use of each skill."""
    make_private_dir(home)
    descriptor = os.open(home / f"{USES_NAME}.flock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        uses, moment = read_uses(home), now.isoformat()
        for folder in folders:
            known = uses.get(str(folder), SkillUse(moment))
            uses[str(folder)] = replace(known, count=known.count + 1, last=moment)
        write_atomic(home / USES_NAME, msgspec.json.encode(uses), synced=False)
    finally:
        os.close(descriptor)


class UseCounter:
    """Counts each skill that the calls of a run name once."""

    def __init__(self) -> None:
        self._counted: set[Path] = set()

    def notice(self, home: Path, workspace: Path, skills: Iterable[Skill], text: str, now: datetime) -> None:
        """Count the skills whose folder the arguments of a call name."""
        used = {
            skill.folder
            for skill in skills
            if skill.tier is not SkillTier.BUNDLED
            and skill.folder not in self._counted
            and skill.folder.name in text
            and any(name in text for name in _names(skill.folder, workspace))
        }
        if used:
            self._counted |= used
            count_uses(home, used, now)


def _names(folder: Path, workspace: Path) -> tuple[str, ...]:
    """Return how a call names a folder: with its whole path, or from the workspace."""
    inside = folder.is_relative_to(workspace)
    return (f"{folder}/", f"{folder.relative_to(workspace)}/") if inside else (f"{folder}/",)


def is_unused(installed: datetime, use: SkillUse | None, now: datetime) -> bool:
    """Return whether a skill should be offered for retirement: neither new nor used for a long time."""
    last = datetime.fromisoformat(use.last) if use is not None and use.last else installed
    return now - max(last, installed) >= UNUSED_AFTER
