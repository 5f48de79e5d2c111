"""`.clawhub/lock.json` and `origin.json`, which other clients of the registry read and write beside `skills.lock`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from retinue.core.errors import SkillError
from retinue.skills.integrity.lock import LockedSkill, SkillOrigin
from retinue.storage.files.descriptors import write_atomic

ORIGIN_FILE = ".clawhub/origin.json"
LOCK_FILE = Path(".clawhub", "lock.json")
_MAX_BYTES = 1_000_000


class OriginFile(Struct, frozen=True, rename="camel"):
    """Where a skill was installed from."""

    registry: str
    slug: str
    installed_version: str
    installed_at: float
    version: int = 1
    owner_handle: str | None = None
    fingerprint: str | None = None


def encode_origin(origin: OriginFile) -> bytes:
    """Return the content of `origin.json`."""
    return msgspec.json.format(msgspec.json.encode(origin), indent=2) + b"\n"


def read_origin(folder: Path) -> SkillOrigin | None:
    """Return where another client installed a skill from; None if it did not, or if its file is not valid."""
    found = read_origin_file(folder)
    if found is None:
        return None
    owner = (found.owner_handle or "").lstrip("@").lower()
    return SkillOrigin(
        "registry", name_of(owner, found.slug), found.installed_version, found.registry, found.slug, owner
    )


def read_origin_file(folder: Path) -> OriginFile | None:
    """Return the valid `origin.json` of a skill."""
    try:
        with (folder / ORIGIN_FILE).open("rb") as opened:
            found = msgspec.json.decode(opened.read(_MAX_BYTES), type=OriginFile)
    except (OSError, msgspec.DecodeError):
        return None
    valid = found.version == 1 and found.registry and found.slug and found.installed_version
    return found if valid else None


def name_of(owner: str, slug: str) -> str:
    """Return how a skill of a registry is named."""
    return f"@{owner}/{slug}" if owner else slug


def write_lock_file(root: Path, skills: Mapping[str, LockedSkill]) -> None:
    """Write the state of the skills below `root` into the lock of other clients; keeps what it does not know.

    `skills` contains the skills of registries by their path below `root`; skills whose folder is gone are removed.
    """
    path = root.parent / LOCK_FILE
    lock = _read_lock(path)
    before = lock.get("skills")
    entries: dict[str, Any] = dict(before) if isinstance(before, dict) else {}
    entries = {key: entry for key, entry in entries.items() if (root / key).is_dir() or ":" in key}
    for key, skill in skills.items():
        known = entries.get(key) if isinstance(entries.get(key), dict) else {}
        kept = {name: value for name, value in (known or {}).items() if name not in ("pinned", "pinReason")}
        origin = read_origin_file(root / key)
        installed_at = int(origin.installed_at) if origin is not None else 0
        entry = {**kept, "version": skill.origin.version, "installedAt": installed_at}
        if skill.origin.owner:
            entry["ownerHandle"] = skill.origin.owner
        if skill.pinned:
            entry["pinned"] = True
            if skill.pin_reason:
                entry["pinReason"] = skill.pin_reason
        entries[key] = entry
    after = {**lock, "version": 1, "skills": entries}
    if after != lock:
        write_atomic(path, msgspec.json.format(msgspec.json.encode(after), indent=2) + b"\n")


def _read_lock(path: Path) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise SkillError(f"{path} cannot be read: {error}. Repair it, or move it away.") from None
    return found if isinstance(found, dict) else {}
