"""The folders that skills come from, highest precedence first."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from retinue.core.extension import SkillRoot
from retinue.skills.settings import SkillsLoadSettings
from retinue.skills.skill import Tier

BUNDLED = Path(__file__).parent / "bundled"


class Source(Struct, frozen=True):
    """A folder to look for skills in, or one that is a skill itself.

    With `within`, the folder is refused when a link leads it out of there. `named` tells that a person asked for just
    this folder, so it is worth a word when it is not there.
    """

    tier: Tier
    path: Path
    within: Path | None = None
    named: bool = False


class Places(Struct, frozen=True):
    """Where this person, this home and this run keep skills; `managed` is `skills` in the state folder.

    `workspace` is None where the workspace's own skills are not to be used, because nobody said it can be trusted.
    """

    user_home: Path
    managed: Path
    workspace: Path | None = None
    plugins: tuple[SkillRoot, ...] = ()
    explicit: tuple[Path, ...] = ()
    bundled: Path = BUNDLED


def list_sources(places: Places, load: SkillsLoadSettings) -> tuple[Source, ...]:
    """Every folder to look in; of two skills with one name, the one from the earlier source wins."""
    return (
        *(Source(Tier.EXPLICIT, _skill_folder(path), named=True) for path in places.explicit),
        *_workspace_sources(places.workspace),
        Source(Tier.PERSONAL, places.user_home / ".agents" / "skills"),
        Source(Tier.MANAGED, places.managed),
        *(Source(Tier.PLUGIN, root.path, named=True) for root in places.plugins),
        Source(Tier.BUNDLED, places.bundled),
        *(Source(Tier.EXTRA, path, named=True) for path in expand_paths(load.extra_dirs, places)),
    )


def expand_paths(texts: Iterable[str], places: Places) -> tuple[Path, ...]:
    """Paths as people write them in the configuration: `~` is their home, the rest counts from the state folder."""
    return tuple(
        places.user_home / text[2:] if text == "~" or text.startswith("~/") else places.managed.parent / text
        for text in texts
        if text
    )


def _workspace_sources(workspace: Path | None) -> tuple[Source, ...]:
    if workspace is None:
        return ()
    return (
        Source(Tier.WORKSPACE, workspace / "skills", within=workspace),
        Source(Tier.PROJECT, workspace / ".agents" / "skills", within=workspace),
    )


def _skill_folder(path: Path) -> Path:
    """A skill may be named by its folder or by its file."""
    absolute = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - `..` goes, links stay
    return absolute.parent if absolute.name.lower() == "skill.md" else absolute
