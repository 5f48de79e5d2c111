"""How skills are offered: as a list in the prompt, limited in size, and as slash commands."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import accumulate
from pathlib import Path

from msgspec import Struct

from retinue.security.untrusted_text import literal, xml
from retinue.skills.skill import Skill

MAX_NAME = 32
MAX_DESCRIPTION = 100
_FOREIGN = re.compile(r"[^a-z0-9]+")
_OPENING = "<available_skills>\n"
_CLOSING = "</available_skills>"
_MAX_PATH_CHARS = 4096


class SkillCatalog(Struct, frozen=True):
    """The rendered list. `text` is inserted into the prompt, including the note; it is empty if there are no skills.

    `note` is empty unless skills or descriptions were omitted.
    """

    text: str
    listed: tuple[Skill, ...]
    omitted: tuple[Skill, ...]
    compact: bool
    note: str


NO_SKILLS = SkillCatalog("", (), (), compact=False, note="")


def render_catalog(skills: Iterable[Skill], *, max_skills: int, max_chars: int, home: Path) -> SkillCatalog:
    """List the skills that the model may invoke, in at most `max_chars` characters.

    If the list is too long, descriptions are omitted first, then the last entries.
    """
    visible = tuple(skill for skill in skills if not skill.disable_model_invocation)
    head = visible[:max_skills]
    prefix = f"{home.as_posix().rstrip('/')}/"
    full = [_render(skill, prefix, compact=False) for skill in head]
    note = "" if len(head) == len(visible) else _describe_cut(len(head), len(visible), compact=False)
    text = _assemble(full, note)
    if len(text) <= max_chars:
        return SkillCatalog(text, head, visible[len(head) :], compact=False, note=note)
    return _shorten(visible, head, prefix, max_chars)


def _shorten(visible: tuple[Skill, ...], head: tuple[Skill, ...], prefix: str, max_chars: int) -> SkillCatalog:
    rows = [_render(skill, prefix, compact=True) for skill in head]
    sizes = list(accumulate(map(len, rows), initial=0))
    for count in range(len(rows), 0, -1):
        note = _describe_cut(count, len(visible), compact=True)
        if len(_assemble([""], note)) + sizes[count] <= max_chars:
            return SkillCatalog(_assemble(rows[:count], note), head[:count], visible[count:], compact=True, note=note)
    return SkillCatalog("", (), visible, compact=True, note=_describe_cut(0, len(visible), compact=True))


def _assemble(rows: list[str], note: str) -> str:
    if not rows:
        return ""
    return "".join((f"{note}\n" if note else "", _OPENING, *rows, _CLOSING))


def _describe_cut(listed: int, total: int, *, compact: bool) -> str:
    bare = ", without descriptions" if compact else ""
    return f"Note: {listed} of {total} skills are listed{bare}, to keep this short. `retinue skills check` shows all."


def _render(skill: Skill, prefix: str, *, compact: bool) -> str:
    location = literal(skill.location.as_posix(), _MAX_PATH_CHARS)
    if location.startswith(prefix):
        location = f"~/{location[len(prefix) :]}"
    description = "" if compact else f"<description>{xml(skill.description)}</description>\n"
    return (
        f"<skill>\n<name>{xml(skill.name)}</name>\n{description}"
        f"<location>{xml(location)}</location>\n"
        f"<version>{skill.version}</version>\n</skill>\n"
    )


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
            description = skill.description
            if len(description) > MAX_DESCRIPTION:
                description = description[: MAX_DESCRIPTION - 1].rstrip() + "…"
            commands.append(SkillCommand(name, description, skill))
    return tuple(commands)


def derive_name(name: str) -> str:
    """Derive a command name: lower-case letters, digits and single underscores, at most 32 characters."""
    return _FOREIGN.sub("_", name.lower()).strip("_")[:MAX_NAME].rstrip("_") or "skill"


def _make_unique(name: str, taken: Collection[str]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        suffix = f"_{number}"
        candidate = name[: MAX_NAME - len(suffix)].rstrip("_") + suffix
    return candidate
