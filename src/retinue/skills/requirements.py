"""Whether a skill may be used on this machine, and if not, why."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache

from msgspec import Struct

from retinue.skills.settings import SkillEntry
from retinue.skills.skill import Requirements, Skill, SkillTier
from retinue.storage.files.file_info import Stamp, is_fresh, stamp_path

_SYSTEMS = {"darwin": "macOS", "linux": "Linux", "win32": "Windows"}
_UNSET = SkillEntry()


class EligibilityContext(Struct, frozen=True):
    """The input of the requirement checks: this machine, the configuration, and the agent's allowlist.

    `env` contains the names of non-empty variables. `allow_bundled` and `agent_allowlist` are None if there is no
    restriction; an empty list allows none.
    """

    os: str
    has_program: Callable[[str], bool]
    env: Collection[str] = frozenset()
    config_is_set: Callable[[str], bool] = lambda path: False
    entries: Mapping[str, SkillEntry] | None = None
    allow_bundled: Collection[str] | None = None
    agent_allowlist: Collection[str] | None = None


class Eligibility(Struct, frozen=True):
    """The result for one skill, with all unmet requirements, so that a person can resolve them at once."""

    reasons: tuple[str, ...] = ()
    switched_off: bool = False
    """Whether a setting disables the skill, so that meeting its requirements would not help."""

    @property
    def eligible(self) -> bool:
        return not self.reasons


_OPEN = Eligibility()


def check_skill(skill: Skill, context: EligibilityContext) -> Eligibility:
    """Check a skill. `always` waives programs, variables and settings, but not the operating system."""
    given = frozenset(filter(lambda name: _has_variable(name, skill, context), skill.requirements.env))
    unmet = find_unmet(skill.requirements, context, given, always=skill.always)
    switches = tuple(_find_switches(skill, context))
    reasons = (*((skill.held,) if skill.held else ()), *switches, *unmet)
    return Eligibility(reasons, bool(switches)) if reasons else _OPEN


def find_unmet(
    needs: Requirements, context: EligibilityContext, variables: Collection[str], *, always: bool = False
) -> Iterator[str]:
    """Describe the unmet requirements; `variables` are those that are set. `always` waives all but the system."""
    if needs.os and context.os not in needs.os:
        names = " or ".join(_SYSTEMS.get(name, name) for name in needs.os)
        yield f"needs {names}, this is {_SYSTEMS.get(context.os, context.os)}"
    if always:
        return
    for program in needs.bins:
        if not context.has_program(program):
            yield f"needs the program `{program}`, not on PATH"
    if needs.any_bins and not any(map(context.has_program, needs.any_bins)):
        programs = ", ".join(f"`{program}`" for program in needs.any_bins)
        yield f"needs one of the programs {programs}, none is on PATH"
    for variable in needs.env:
        if variable not in variables:
            yield f"needs the environment variable `{variable}`, not set"
    for path in needs.config:
        if not context.config_is_set(path):
            yield f"needs the setting `{path}`, not set or switched off"


def _entry(skill: Skill, context: EligibilityContext) -> SkillEntry:
    entries = context.entries or {}
    return entries.get(skill.key) or entries.get(skill.name) or _UNSET


def _find_switches(skill: Skill, context: EligibilityContext) -> Iterator[str]:
    """Yield the settings that disable the skill."""
    if not _entry(skill, context).enabled:
        yield f"switched off by `skills.entries.{skill.key}.enabled`"
    if skill.tier is SkillTier.BUNDLED and not _is_listed(skill, context.allow_bundled):
        yield "bundled, and not listed in `skills.allowBundled`"
    if skill.tier is not SkillTier.EXPLICIT and not _is_listed(skill, context.agent_allowlist):
        yield "not in the list of skills this agent may use"


def _is_listed(skill: Skill, names: Collection[str] | None) -> bool:
    return names is None or skill.name in names or skill.key in names


def _has_variable(variable: str, skill: Skill, context: EligibilityContext) -> bool:
    entry = _entry(skill, context)
    if variable in context.env or entry.env.get(variable):
        return True
    return variable == skill.primary_env and bool(entry.api_key)


class Programs:
    """Finds programs; checking for changes costs one stat for each folder of PATH."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._path: str | None = None
        self._stamps: dict[str, Stamp] = {}
        self._has_program: Callable[[str], bool] = lambda name: False

    def on(self, path: str) -> Callable[[str], bool]:
        """Return a function that checks whether a program is in `path`; the same one while nothing changed."""
        now = self._now_ns()
        stamps = {folder: stamp_path(folder) for folder in path.split(os.pathsep)}
        settled = not any(is_fresh(stamp, now, now) for stamp in stamps.values())
        if not settled or path != self._path or stamps != self._stamps:
            self._path, self._stamps = path, stamps
            self._has_program = cache(lambda name: shutil.which(name, path=path) is not None)
        return self._has_program
