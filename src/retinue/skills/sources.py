"""The source folders of skills, highest precedence first."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from retinue.core.extension import SkillRoot
from retinue.skills.settings import SkillsLoadSettings
from retinue.skills.skill import SkillTier

BUNDLED = Path(__file__).parent / "bundled"


class SkillSource(Struct, frozen=True):
    """A folder to search for skills, or one that is a skill itself.

    With `within`, the folder is refused if a link leads outside of that folder. `named` means that a person named this
    folder, so a missing folder is reported.
    """

    tier: SkillTier
    path: Path
    within: Path | None = None
    named: bool = False


class SkillFolders(Struct, frozen=True):
    """The skill folders of the person, the home and the run; `managed` is `skills` in the state folder.

    `workspace` is None if the workspace's own skills must not be used, because it is not trusted.
    """

    user_home: Path
    managed: Path
    workspace: Path | None = None
    plugins: tuple[SkillRoot, ...] = ()
    explicit: tuple[Path, ...] = ()
    bundled: Path = BUNDLED


def list_sources(places: SkillFolders, load: SkillsLoadSettings) -> tuple[SkillSource, ...]:
    """Return every folder to search; for equal names, the skill from the earlier source is used."""
    return (
        *(SkillSource(SkillTier.EXPLICIT, _skill_folder(path), named=True) for path in places.explicit),
        *_workspace_sources(places.workspace),
        SkillSource(SkillTier.PERSONAL, places.user_home / ".agents" / "skills"),
        SkillSource(SkillTier.MANAGED, places.managed),
        *(SkillSource(SkillTier.PLUGIN, root.path, named=True) for root in places.plugins),
        SkillSource(SkillTier.BUNDLED, places.bundled),
        *(SkillSource(SkillTier.EXTRA, path, named=True) for path in expand_paths(load.extra_dirs, places)),
    )


def expand_paths(texts: Iterable[str], places: SkillFolders) -> tuple[Path, ...]:
    """Expand configured paths: `~` is the home folder, relative paths start from the state folder."""
    return tuple(
        places.user_home / text[2:] if text == "~" or text.startswith("~/") else places.managed.parent / text
        for text in texts
        if text
    )


def _workspace_sources(workspace: Path | None) -> tuple[SkillSource, ...]:
    if workspace is None:
        return ()
    return (
        SkillSource(SkillTier.WORKSPACE, workspace / "skills", within=workspace),
        SkillSource(SkillTier.PROJECT, workspace / ".agents" / "skills", within=workspace),
    )


def _skill_folder(path: Path) -> Path:
    """Return the folder of a skill that is given by its folder or by its file."""
    absolute = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - `..` goes, links stay
    return absolute.parent if absolute.name.lower() == "skill.md" else absolute
