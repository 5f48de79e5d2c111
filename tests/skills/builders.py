"""Skills on disk and in memory for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retinue.skills.library import Discovery, discover
from retinue.skills.search import SkillSource
from retinue.skills.settings import SkillsLimits
from retinue.skills.skill import Skill, SkillTier, parse_skill
from retinue.structs.decode import decode


def write_skill(folder: Path, *, name: str | None = None, description: str = "Does a thing.", more: str = "") -> Path:
    """Put a skill in `folder`, named like it unless told otherwise, and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "SKILL.md"
    file.write_text(f"---\nname: {name or folder.name}\ndescription: {description}\n{more}---\n\n# Steps\n")
    return file


def parse(text: str, *, folder: str = "demo") -> Skill:
    return parse_skill(text.encode(), Path("/skills") / folder / "SKILL.md", SkillTier.WORKSPACE)


def make_skill(name: str = "demo", **fields: Any) -> Skill:
    location = Path("/home/ada/skills") / name / "SKILL.md"
    base: dict[str, Any] = {
        "name": name,
        "description": f"Does {name}.",
        "location": location,
        "folder": location.parent,
        "tier": SkillTier.WORKSPACE,
        "version": "sha256:0123456789abcdef",
    }
    return Skill(**(base | fields))


def look(*sources: SkillSource | Path, allowed: tuple[Path, ...] = (), **limits: int) -> Discovery:
    """Look through folders; a bare path is a workspace's skills folder."""
    asked = [SkillSource(SkillTier.WORKSPACE, source) if isinstance(source, Path) else source for source in sources]
    return discover(asked, decode(SkillsLimits, limits), allowed)[0]


def names(found: Discovery) -> list[str]:
    return [skill.name for skill in found.skills]
