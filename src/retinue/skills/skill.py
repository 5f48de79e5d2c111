"""A skill: the declarations of a `SKILL.md`.

The file follows the open Agent Skills format; OpenClaw's additions are read under `metadata.retinue` and
`metadata.openclaw`. The instructions are not stored: the model reads the file when it needs them.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import SkillError
from retinue.skills.front_matter import NAME_LIMIT, Extras, InstallWay, make_line, read_declaration

VERSION_DIGITS = 8
"""Enough to distinguish versions of a file; each further digit would be in every prompt, once per skill."""


class SkillTier(StrEnum):
    """The kind of source of a skill; for equal names, the first tier in this order takes precedence."""

    EXPLICIT = "explicit"
    WORKSPACE = "workspace"
    PROJECT = "project"
    PERSONAL = "personal"
    MANAGED = "managed"
    PLUGIN = "plugin"
    BUNDLED = "bundled"
    EXTRA = "extra"


class Requirements(Struct, frozen=True):
    """The requirements of a skill; an empty field requires nothing."""

    os: tuple[str, ...] = ()
    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()


class InstallSpec(Struct, frozen=True):
    """One way to install what a skill needs; `target` is the formula, package, module or address."""

    kind: str
    target: str
    id: str | None = None
    label: str | None = None
    bins: tuple[str, ...] = ()
    os: tuple[str, ...] = ()
    archive: str | None = None
    extract: bool | None = None
    strip_components: int | None = None
    target_dir: str | None = None


class Skill(Struct, frozen=True):
    """A skill as its file declares it. `location` is the file; relative paths start from `folder`."""

    name: str
    description: str
    location: Path
    folder: Path
    tier: SkillTier
    version: str
    homepage: str | None = None
    user_invocable: bool = True
    disable_model_invocation: bool = False
    allow_remote: bool = True
    command_dispatch: str | None = None
    command_tool: str | None = None
    command_arg_mode: str = "raw"
    license: str | None = None
    compatibility: str | None = None
    allowed_tools: tuple[str, ...] = ()
    requirements: Requirements = Requirements()
    always: bool = False
    emoji: str | None = None
    primary_env: str | None = None
    skill_key: str | None = None
    install: tuple[InstallSpec, ...] = ()

    @property
    def key(self) -> str:
        """The name under which `skills.entries` configures it."""
        return self.skill_key or self.name


class SkillProblem(Struct, frozen=True):
    """A problem with a file or folder; other skills are loaded nevertheless."""

    path: Path
    message: str


def parse_skill(data: bytes, location: Path, tier: SkillTier) -> Skill:
    """Parse a `SKILL.md`; raise `SkillError` if it is invalid."""
    declared = read_declaration(_decode(data))
    extras = declared.extras
    name = declared.name or make_line(location.parent.name, NAME_LIMIT)
    if not name:
        raise SkillError("It has no name. Add a line `name: …` to its front matter.")
    if not declared.description:
        raise SkillError("It has no description. Add a line `description: …` to its front matter.")
    by_model = (declared.disable_model_invocation, declared.invocation.disable_model_invocation)
    return Skill(
        name=name,
        description=declared.description,
        location=location,
        folder=location.parent,
        tier=tier,
        version=f"sha256:{hashlib.sha256(data).hexdigest()[:VERSION_DIGITS]}",
        homepage=declared.homepage or extras.homepage,
        user_invocable=declared.user_invocable,
        disable_model_invocation=any(by_model) or extras.invocation.disable_model_invocation,
        allow_remote=declared.invocation.allow_remote and extras.invocation.allow_remote,
        command_dispatch=declared.command_dispatch,
        command_tool=declared.command_tool,
        command_arg_mode=declared.command_arg_mode,
        license=declared.license,
        compatibility=declared.compatibility,
        allowed_tools=declared.allowed_tools,
        requirements=_collect_requirements(extras),
        always=extras.always,
        emoji=extras.emoji,
        primary_env=extras.primary_env,
        skill_key=extras.skill_key,
        install=tuple(map(_convert_install, extras.install)),
    )


def _decode(data: bytes) -> str:
    if b"\0" in data:
        raise SkillError("It is not a text file: it contains zero bytes.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SkillError(f"It is not UTF-8 text: byte {error.start} cannot be read. Save it as UTF-8.") from None


def _collect_requirements(extras: Extras) -> Requirements:
    needs = extras.requires
    return Requirements(extras.os, needs.bins, needs.any_bins, needs.env, needs.config)


def _convert_install(way: InstallWay) -> InstallSpec:
    return InstallSpec(
        kind=way.kind,
        target=way.formula or way.package or way.module or way.url or "",
        id=way.id,
        label=way.label,
        bins=way.bins,
        os=way.os,
        archive=way.archive,
        extract=way.extract,
        strip_components=way.strip_components,
        target_dir=way.target_dir,
    )
