"""`skills.lock`: the accepted content of every skill that did not come with the package."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct, field

from retinue.core.errors import SkillError
from retinue.skills.integrity.contents import FileHash
from retinue.storage.files.descriptors import write_atomic

LOCK_NAME = "skills.lock"


class SkillOrigin(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a skill came from: `kind` is registry, git, folder, zip, proposal or local."""

    kind: str = "local"
    reference: str = ""
    version: str = ""
    registry: str = ""
    slug: str = ""
    owner: str = ""
    path: str = ""
    """The folder of the skill in the repository or archive."""


class KeptVersion(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A version of a skill in the store of versions."""

    digest: str
    at: str
    version: str = ""
    accepted: bool = False


class LockedSkill(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is known about one skill. The folder may have the content `accepted`, or `next` while it is replaced."""

    name: str
    origin: SkillOrigin = SkillOrigin()
    accepted: str = ""
    next: str = ""
    next_origin: SkillOrigin | None = None
    installed: str = ""
    files: dict[str, FileHash] = {}
    versions: tuple[KeptVersion, ...] = ()
    pinned: bool = False
    pin_reason: str = ""


class SkillLock(Struct, frozen=True):
    """The content of `skills.lock`; skills are named by their folder, relative to the home if it is inside."""

    version: int = 1
    skills: dict[str, LockedSkill] = field(default_factory=dict)


def read_lock(home: Path) -> SkillLock:
    """Return the lock; raise `SkillError` if it is damaged, because then nothing is known to be accepted."""
    path = home / LOCK_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=SkillLock)
    except FileNotFoundError:
        return SkillLock()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SkillError(f"{path} cannot be read: {error}. Restore it from a backup, or move it away.") from None


def write_lock(home: Path, lock: SkillLock) -> None:
    """Replace the lock in one step."""
    data = msgspec.json.format(msgspec.json.encode(lock, order="sorted"), indent=2)
    write_atomic(home / LOCK_NAME, data + b"\n")


def folder_key(home: Path, folder: Path) -> str:
    """Return the name of a skill's folder in the lock."""
    return folder.relative_to(home).as_posix() if folder.is_relative_to(home) else folder.as_posix()
