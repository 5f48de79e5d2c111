"""Slash commands for skills."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from msgspec import Struct

from retinue.skills.skill import Skill

MAX_NAME = 32
MAX_DESCRIPTION = 100
_FALLBACK = "skill"
_FOREIGN = re.compile(r"[^a-z0-9]+")


class SkillCommand(Struct, frozen=True):
    """The name of a slash command, and the skill it runs."""

    name: str
    description: str
    skill: Skill


def name_commands(skills: Iterable[Skill], *, reserved: Collection[str] = ()) -> tuple[SkillCommand, ...]:
    """Return one command per user-invocable skill; equal names get `_2`, `_3` … in the order given."""
    taken = {derive_name(name) for name in reserved}
    commands = []
    for skill in skills:
        if skill.user_invocable:
            name = _make_unique(derive_name(skill.name), taken)
            taken.add(name)
            commands.append(SkillCommand(name, _shorten(skill.description), skill))
    return tuple(commands)


def derive_name(name: str) -> str:
    """Derive a command name: lower-case letters, digits and single underscores, at most 32 characters."""
    return _FOREIGN.sub("_", name.lower()).strip("_")[:MAX_NAME].rstrip("_") or _FALLBACK


def _make_unique(name: str, taken: Collection[str]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        suffix = f"_{number}"
        candidate = name[: MAX_NAME - len(suffix)].rstrip("_") + suffix
    return candidate


def _shorten(description: str) -> str:
    if len(description) <= MAX_DESCRIPTION:
        return description
    return description[: MAX_DESCRIPTION - 1].rstrip() + "…"
