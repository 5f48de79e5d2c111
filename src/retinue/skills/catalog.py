"""How skills are offered: as a list in the prompt, limited in size, and as slash commands."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import accumulate
from pathlib import Path

from msgspec import Struct

from retinue.security.untrusted_text import literal, xml
from retinue.skills.skill import VERSION_DIGITS, Skill, SkillTier

MAX_NAME = 32
MAX_DESCRIPTION = 100
_FOREIGN = re.compile(r"[^a-z0-9]+")
_OPENING = "<available_skills>\n"
_CLOSING = "</available_skills>"
_CLOSING_GROUP = "</bundled>\n"
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
    full = _Rows(head, prefix, compact=False)
    note = "" if len(head) == len(visible) else _describe_cut(len(head), len(visible), compact=False)
    if full.measure(len(head), note) <= max_chars:
        return SkillCatalog(full.assemble(len(head), note), head, visible[len(head) :], compact=False, note=note)
    return _shorten(visible, head, prefix, max_chars)


def _shorten(visible: tuple[Skill, ...], head: tuple[Skill, ...], prefix: str, max_chars: int) -> SkillCatalog:
    rows = _Rows(head, prefix, compact=True)
    for count in range(len(head), 0, -1):
        note = _describe_cut(count, len(visible), compact=True)
        if rows.measure(count, note) <= max_chars:
            return SkillCatalog(rows.assemble(count, note), head[:count], visible[count:], compact=True, note=note)
    return SkillCatalog("", (), visible, compact=True, note=_describe_cut(0, len(visible), compact=True))


class _Rows:
    """The entries of the list, and what the first of them need together.

    Bundled skills are a group with one location and one version, because these are half of an entry: dozens of skills
    that came with the package would otherwise cost every request more than all tools.
    """

    def __init__(self, skills: tuple[Skill, ...], prefix: str, *, compact: bool) -> None:
        self._skills = skills
        self._place = next((skill.folder.parent for skill in skills if _is_bundled(skill)), Path())
        self._is_grouped = [_is_bundled(skill) and skill.folder.parent == self._place for skill in skills]
        self._prefix = prefix
        self._rows = [
            _render_grouped(skill, compact=compact) if grouped else _render(skill, prefix, compact=compact)
            for skill, grouped in zip(skills, self._is_grouped, strict=True)
        ]
        self._sizes = list(accumulate(map(len, self._rows), initial=0))
        self._counts = list(accumulate(self._is_grouped, initial=0))

    def measure(self, count: int, note: str) -> int:
        """Return the length of the text for the first `count` skills."""
        if not count:
            return 0
        frame = len(note) + bool(note) + len(_OPENING) + len(_CLOSING)
        group = len(self._open_group(count)) + len(_CLOSING_GROUP) if self._counts[count] else 0
        return frame + group + self._sizes[count]

    def assemble(self, count: int, note: str) -> str:
        if not count:
            return ""
        single = [row for row, grouped in self._pairs(count) if not grouped]
        group = [row for row, grouped in self._pairs(count) if grouped]
        if group:
            group = [self._open_group(count), *group, _CLOSING_GROUP]
        return "".join((f"{note}\n" if note else "", _OPENING, *single, *group, _CLOSING))

    def _pairs(self, count: int) -> Iterator[tuple[str, bool]]:
        return zip(self._rows[:count], self._is_grouped[:count], strict=True)

    def _open_group(self, count: int) -> str:
        grouped = zip(self._skills[:count], self._is_grouped, strict=False)
        versions = "".join(skill.version for skill, is_grouped in grouped if is_grouped)
        digest = hashlib.sha256(versions.encode()).hexdigest()[:VERSION_DIGITS]
        place = _shorten_path(self._place / "NAME" / "SKILL.md", self._prefix)
        return f'<bundled location="{xml(place)}" version="sha256:{digest}">\n'


def _is_bundled(skill: Skill) -> bool:
    """Return whether a skill came with the package and is found by its name."""
    return skill.tier is SkillTier.BUNDLED and skill.location.parts[-2:] == (skill.name, "SKILL.md")


def _describe_cut(listed: int, total: int, *, compact: bool) -> str:
    bare = ", without descriptions" if compact else ""
    return f"Note: {listed} of {total} skills are listed{bare}, to keep this short. `retinue skills check` shows all."


def _shorten_path(path: Path, prefix: str) -> str:
    location = literal(path.as_posix(), _MAX_PATH_CHARS)
    return f"~/{location[len(prefix) :]}" if location.startswith(prefix) else location


def _render_grouped(skill: Skill, *, compact: bool) -> str:
    return f"{xml(skill.name)}\n" if compact else f"{xml(skill.name)}: {xml(skill.description)}\n"


def _render(skill: Skill, prefix: str, *, compact: bool) -> str:
    description = "" if compact else f"<description>{xml(skill.description)}</description>\n"
    return (
        f"<skill>\n<name>{xml(skill.name)}</name>\n{description}"
        f"<location>{xml(_shorten_path(skill.location, prefix))}</location>\n"
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
