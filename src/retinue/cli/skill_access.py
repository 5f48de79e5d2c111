"""What the commands of `retinue skills` share: the home of the owner, the store, and looking skills up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.cli.common import Invocation

if TYPE_CHECKING:
    from retinue.runtime.home import Home
    from retinue.skills.integrity.lock import LockedSkill
    from retinue.skills.integrity.store import SkillStore
    from retinue.skills.registry.connection import Progress
    from retinue.skills.skill import Skill
    from retinue.skills.sources import RegistryAccess


def open_owner_home(invocation: Invocation) -> Home:
    """Load the home for a decision that only the owner may make."""
    from retinue.core.errors import UsageError
    from retinue.runtime.agents.skill_review import IN_COMMAND

    home = invocation.load_home()
    if home.is_in_command:
        raise UsageError(IN_COMMAND)
    return home


def open_store(home: Home) -> SkillStore:
    """Return the store of installed skills."""
    from retinue.skills.integrity.store import SkillStore

    return SkillStore(home.paths.path, home.clock)


def record_change(home: Home, kind: str, entry: LockedSkill) -> None:
    """Write a decision to the audit log."""
    home.audit.record(
        kind,
        cli_actor(),
        {"name": entry.name, "digest": entry.installed, "accepted": entry.installed == entry.accepted},
    )


def load_skills(home: Home, agent_id: str | None) -> tuple[Skill, ...]:
    """Return the skills of an agent."""
    from retinue.runtime.agents.workspace import open_workspace

    with open_workspace(home, home.agent_id(agent_id)) as room:
        return room.library.load().skills


def find_skill(home: Home, agent_id: str | None, name: str) -> Skill:
    """Return the skill with a name, or in a folder with this name."""
    from retinue.runtime.agents.skill_review import HomeSkillReview

    return HomeSkillReview(home, home.agent_id(agent_id)).find(name)


def check_folder_name(name: str) -> str:
    """Return a name that can be a folder's; raise `UsageError` for others."""
    import re

    from retinue.core.errors import UsageError

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise UsageError(f"'{name}' cannot be the name of a folder. Choose one with --as NAME.")
    return name


def describe_locked(folder: Path, entry: LockedSkill) -> dict[str, Any]:
    """Return what `skills.lock` says about a skill."""
    return {
        "name": entry.name,
        "path": str(folder),
        "digest": entry.installed,
        "accepted": entry.installed == entry.accepted,
        "version": entry.origin.version,
        "source": entry.origin.kind,
        "reference": entry.origin.reference,
        "pinned": entry.pinned,
        "pinReason": entry.pin_reason,
        "versions": [each.digest for each in entry.versions],
    }


def cli_actor() -> str:
    from retinue.storage.auditlog import CLI

    return CLI


def skill_roots(home: Home, agent_id: str | None) -> tuple[Path, Path]:
    """Return the folders that skills are installed in: for the agent, and for all agents."""
    from retinue.runtime.agents.workspace import locate_workspace

    return locate_workspace(home, home.agent_id(agent_id)) / "skills", home.paths.skills


def write_foreign_locks(home: Home, agent_id: str | None) -> None:
    """Bring the lock files of other clients up to date with `skills.lock`."""
    from retinue.skills.integrity.lock import read_lock
    from retinue.skills.registry.compatible_files import LOCK_FILE, write_lock_file

    locked = read_lock(home.paths.path).skills
    for root in skill_roots(home, agent_id):
        found = {}
        for key, entry in locked.items():
            folder = home.paths.path / key
            # Other clients find a skill by its name, so one that was installed under another name is left out.
            if entry.origin.kind == "registry" and folder == root / entry.origin.reference and folder.is_dir():
                found[entry.origin.reference] = entry
        if found or (root.parent / LOCK_FILE).is_file():
            write_lock_file(root, found)


def make_access(home: Home, registry: str | None, progress: Progress) -> RegistryAccess:
    """Return how to reach the registry: the option, the configuration, or the variable of ClawHub's program."""
    from retinue.skills.registry.address import DEFAULT_SITE
    from retinue.skills.sources import RegistryAccess

    configured = home.config.skills.registry
    if configured == DEFAULT_SITE:
        configured = os.environ.get("CLAWHUB_REGISTRY") or configured
    return RegistryAccess(registry or configured, home.paths, dict(home.environment), home.clock, progress)
