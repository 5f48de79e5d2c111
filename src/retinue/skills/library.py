"""The skills of one agent: its source folders, what they contain, and a cache until files change.

The sources are searched in order; of several skills with the same name, the first is used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import SkillError
from retinue.core.extension import SkillRoot
from retinue.skills.integrity.guard import SkillGuard, WrittenFolders
from retinue.skills.requirements import Eligibility, EligibilityContext, check_skill
from retinue.skills.search import Scan, SkillFile, SkillSource, search_source
from retinue.skills.settings import SkillsLimits, SkillsLoadSettings, SkillsSettings
from retinue.skills.skill import Skill, SkillProblem, SkillTier, parse_skill
from retinue.storage.files.descriptors import fold_name, read_up_to
from retinue.storage.files.file_info import Stamp, is_fresh, stamp_path, stamp_status

BUNDLED = Path(__file__).parent / "bundled"


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
    own = places.workspace
    workspace = (
        ()
        if own is None
        else (
            SkillSource(SkillTier.WORKSPACE, own / "skills", within=own),
            SkillSource(SkillTier.PROJECT, own / ".agents" / "skills", within=own),
            SkillSource(SkillTier.PROJECT, own / ".pi" / "skills", within=own),
        )
    )
    return (
        *(SkillSource(SkillTier.EXPLICIT, _skill_folder(path), named=True) for path in places.explicit),
        *workspace,
        SkillSource(SkillTier.PERSONAL, places.user_home / ".agents" / "skills"),
        SkillSource(SkillTier.PERSONAL, places.user_home / ".pi" / "agent" / "skills"),
        SkillSource(SkillTier.MANAGED, places.managed),
        *(SkillSource(SkillTier.PLUGIN, root.path, named=True, flat=root.flat) for root in places.plugins),
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


def _skill_folder(path: Path) -> Path:
    """Return the folder of a skill that is given by its folder or by its file."""
    absolute = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - `..` goes, links stay
    return absolute.parent if absolute.name.lower() == "skill.md" else absolute


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
        guard: SkillGuard | None = None,
    ) -> None:
        self._guard = guard
        self._guarded: list[tuple[str, Stamp]] = []
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
            settled = not changed or any(map(self._is_settling, changed))
            # A changed file of a reviewed skill counts at once: until it is accepted, the skill is off.
            if settled and all(stamp_path(path, follow=False) == stamp for path, stamp in self._guarded):
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
            result = self._parsed.get(known)
            if result is None:
                try:
                    result = read_skill(file, max_bytes)
                except SkillError as error:
                    result = error
            parsed[known] = result
            if isinstance(result, SkillError):
                raise SkillError(str(result))
            return result

        found, scan = discover(self._sources, self._limits, self._allowed_targets, read)
        ended = self._now_ns()
        self._parsed = {key: value for key, value in parsed.items() if not is_fresh(key[2], began, ended)}
        self._stamps = list(scan.stamps.items())
        # Something may still change without a new stamp: then the next load has to search again.
        guarded: dict[str, Stamp] = {}
        if self._guard is not None:
            reviewed, guarded = self._guard.check(found.skills)
            found = replace(found, skills=reviewed)
            self._guarded = list(guarded.items())
        fresh = any(is_fresh(stamp, began, ended) for stamp in (*scan.stamps.values(), *guarded.values()))
        self._found = None if fresh else found
        return found


def open_library(
    settings: SkillsSettings, places: SkillFolders, find_written: WrittenFolders | None = None
) -> SkillLibrary:
    """Return the library of the skills in these folders; `find_written` tells in which of them an agent wrote."""
    allowed = expand_paths(settings.load.allow_symlink_targets, places)
    load = settings.load
    return SkillLibrary(
        list_sources(places, load),
        settings.limits,
        allowed,
        watch=load.watch,
        settle_ms=load.watch_debounce_ms,
        guard=SkillGuard(places.managed.parent, review_all=settings.review == "all", find_written=find_written),
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
