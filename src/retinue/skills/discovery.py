"""Skill discovery: search all sources in order; for equal names, the first skill is used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import SkillError
from retinue.skills.search import Scan, SkillFile, search_source
from retinue.skills.settings import SkillsLimits
from retinue.skills.skill import Skill, SkillProblem, parse_skill
from retinue.skills.sources import SkillSource
from retinue.storage.files.descriptors import fold_name, read_up_to


class Shadowing(Struct, frozen=True):
    """A skill that is not used because an earlier one has the same name."""

    skill: Skill
    by: Skill


class Discovery(Struct, frozen=True):
    """The skills found, sorted by name. Problems and limits say what was not read, and why."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[SkillProblem, ...] = ()
    shadowed: tuple[Shadowing, ...] = ()
    limits: tuple[SkillProblem, ...] = ()


def discover(
    sources: Iterable[SkillSource],
    limits: SkillsLimits,
    allowed_targets: Sequence[Path] = (),
    read: Callable[[SkillFile, int], Skill] | None = None,
) -> tuple[Discovery, Scan]:
    """Search all sources once; `read` takes an open file and the maximum size.

    The returned scan records what was searched.
    """
    make = read or read_skill
    scan = Scan(
        max_candidates=limits.max_candidates_per_root,
        max_skills=limits.max_skills_loaded_per_source,
        allowed_targets=tuple(os.path.realpath(target) for target in allowed_targets),
        read=lambda file: make(file, limits.max_skill_file_bytes),
    )
    for source in sources:
        search_source(source, scan)
    return _settle(scan), scan


def read_skill(file: SkillFile, max_bytes: int) -> Skill:
    """Read and parse an open `SKILL.md`; raises `SkillError`."""
    claimed = file.status.st_size
    # The reported size is not reliable: the file may grow.
    data = b"" if claimed > max_bytes else read_up_to(file.descriptor, max_bytes + 1, claimed)
    if claimed > max_bytes or len(data) > max_bytes:
        raise SkillError(
            f"It is larger than {max_bytes:,} bytes (`skills.limits.maxSkillFileBytes`). "
            "Move parts of it to separate files."
        )
    return parse_skill(data, file.location, file.tier)


def _settle(scan: Scan) -> Discovery:
    winners: dict[str, Skill] = {}
    shadowed = []
    for skill in scan.skills:
        winner = winners.setdefault(fold_name(skill.name), skill)
        if winner is not skill:
            shadowed.append(Shadowing(skill, winner))
    ordered = tuple(skill for _, skill in sorted(winners.items(), key=lambda item: item[0]))
    return Discovery(ordered, tuple(scan.problems), tuple(shadowed), tuple(scan.limits_hit))
