"""The folders that skills come from, highest precedence first."""

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
    """A folder to look for skills in, or one that is a skill itself.

    With `within`, the folder is refused when a link leads it out of there. `named` tells that a person asked for just
    this folder, so it is worth a word when it is not there.
    """

    tier: SkillTier
    path: Path
    within: Path | None = None
    named: bool = False


class SkillFolders(Struct, frozen=True):
    """Where this person, this home and this run keep skills; `managed` is `skills` in the state folder.

    `workspace` is None where the workspace's own skills are not to be used, because nobody said it can be trusted.
    """

    user_home: Path
    managed: Path
    workspace: Path | None = None
    plugins: tuple[SkillRoot, ...] = ()
    explicit: tuple[Path, ...] = ()
    bundled: Path = BUNDLED


def list_sources(places: SkillFolders, load: SkillsLoadSettings) -> tuple[SkillSource, ...]:
    """Every folder to look in; of two skills with one name, the one from the earlier source wins."""
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
    """Paths as people write them in the configuration: `~` is their home, the rest counts from the state folder."""
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
    """A skill may be named by its folder or by its file."""
    absolute = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - `..` goes, links stay
    return absolute.parent if absolute.name.lower() == "skill.md" else absolute
