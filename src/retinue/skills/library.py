"""The skills of one agent, cached until files change."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.core.errors import SkillError
from retinue.skills.discovery import Discovery, discover, read_skill
from retinue.skills.requirements import Eligibility, EligibilityContext, check_skill
from retinue.skills.search import SkillFile
from retinue.skills.settings import SkillsLimits, SkillsSettings
from retinue.skills.skill import Skill, SkillTier
from retinue.skills.sources import SkillFolders, SkillSource, expand_paths, list_sources
from retinue.storage.files.file_info import Stamp, is_fresh, stamp_path, stamp_status


class CheckedSkill(Struct, frozen=True):
    """A skill and whether it may be used."""

    skill: Skill
    gate: Eligibility


_Parsed = dict[tuple[Path, SkillTier, Stamp], Skill | SkillError]


class SkillLibrary:
    """Finds skills; if nothing changed, `load` costs one stat for each skill and each folder around them.

    Without `watch`, the first result is kept. A change is used once it is `settle_ms` old, so that a skill is not read
    while it is being written.
    """

    def __init__(
        self,
        sources: Sequence[SkillSource],
        limits: SkillsLimits,
        allowed_targets: Sequence[Path] = (),
        *,
        watch: bool = True,
        settle_ms: int = 0,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._sources = tuple(sources)
        self._limits = limits
        self._allowed_targets = tuple(allowed_targets)
        self._watch = watch
        self._settle_ns = settle_ms * 1_000_000
        self._now_ns = now_ns
        self._last: Discovery | None = None
        self._found: Discovery | None = None
        self._stamps: list[tuple[str, Stamp]] = []
        self._parsed: _Parsed = {}

    def load(self) -> Discovery:
        """Return the current skills; unchanged files are not read again."""
        if self._last is not None and not self._watch:
            return self._last
        if self._found is not None:
            changed = [now for path, stamp in self._stamps if (now := stamp_path(path)) != stamp]
            if not changed:
                return self._found
            if any(map(self._is_settling, changed)):
                return self._found
        self._last = self._look()
        return self._last

    def _is_settling(self, stamp: Stamp) -> bool:
        """Return whether a change is too recent; one in the future does not count."""
        return stamp is not None and 0 <= self._now_ns() - stamp[4] < self._settle_ns

    def _look(self) -> Discovery:
        began = self._now_ns()
        parsed: _Parsed = {}

        def read(file: SkillFile, max_bytes: int) -> Skill:
            known = (file.location, file.tier, stamp_status(file.status))
            result = self._parsed.get(known) or _attempt(file, max_bytes)
            parsed[known] = result
            if isinstance(result, SkillError):
                raise SkillError(str(result))
            return result

        found, scan = discover(self._sources, self._limits, self._allowed_targets, read)
        ended = self._now_ns()
        self._parsed = {key: value for key, value in parsed.items() if not is_fresh(key[2], began, ended)}
        self._stamps = list(scan.stamps.items())
        # Something may still change without a new stamp: then the next load has to search again.
        fresh = any(is_fresh(stamp, began, ended) for stamp in scan.stamps.values())
        self._found = None if fresh else found
        return found


def open_library(settings: SkillsSettings, places: SkillFolders) -> SkillLibrary:
    """Return the library of the skills in these folders."""
    allowed = expand_paths(settings.load.allow_symlink_targets, places)
    load = settings.load
    return SkillLibrary(
        list_sources(places, load), settings.limits, allowed, watch=load.watch, settle_ms=load.watch_debounce_ms
    )


def evaluate_skills(skills: Sequence[Skill], context: EligibilityContext) -> tuple[CheckedSkill, ...]:
    """Return every skill with its eligibility."""
    return tuple(CheckedSkill(skill, check_skill(skill, context)) for skill in skills)


def make_context(
    settings: SkillsSettings,
    *,
    system: str,
    environment: Mapping[str, str],
    has_program: Callable[[str], bool],
    config: Mapping[str, Any],
    allowlist: Collection[str] | None = None,
) -> EligibilityContext:
    """Return the input of the requirement checks; `system` is `sys.platform`, `config` the whole configuration."""
    return EligibilityContext(
        os=system,
        has_program=has_program,
        env=frozenset(name for name, value in environment.items() if value),
        config_is_set=lambda path: _is_set(config, path),
        entries=settings.entries,
        allow_bundled=None if settings.allow_bundled is None else frozenset(settings.allow_bundled),
        agent_allowlist=None if allowlist is None else frozenset(allowlist),
    )


def _is_set(config: Mapping[str, Any], path: str) -> bool:
    value: Any = config
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return False
        value = value.get(part)
    return bool(value)


def _attempt(file: SkillFile, max_bytes: int) -> Skill | SkillError:
    try:
        return read_skill(file, max_bytes)
    except SkillError as error:
        return error
