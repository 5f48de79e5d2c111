"""A skill: the declarations of a `SKILL.md`, whose front matter is untrusted data that is validated here once.

The file follows the open Agent Skills format; OpenClaw's additions are read under `metadata.retinue` and
`metadata.openclaw`. The instructions are not stored: the model reads the file when it needs them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Struct

from retinue.core.errors import SkillError
from retinue.security.untrusted_text import literal
from retinue.storage.frontmatter import FrontMatterError, parse_yaml, split_front_matter
from retinue.structs.declare import Declared, Parsed
from retinue.structs.decode import DecodeError, decode

NAME_LIMIT = 64
DESCRIPTION_LIMIT = 1024
_TEXT_LIMIT = 500
_MAX_KEYS = 64
_NAMESPACES = ("openclaw", "retinue")
_SYSTEM_NAMES = {"macos": "darwin", "mac": "darwin", "osx": "darwin", "windows": "win32"}

_TEXT_KEYS = frozenset(
    ("name", "description", "homepage", "license", "compatibility", "command-dispatch", "command-tool")
)
_TOP_KEY = re.compile(r"^([A-Za-z][\w-]*)[ \t]*:(?=\s|$)", re.MULTILINE)
_TOP_LINE = re.compile(r"^[^\s#]", re.MULTILINE)
_TOOL_NAME = re.compile(r"[^\s,(]+(?:\([^)]*\))?")


def make_line(text: str, limit: int = _TEXT_LIMIT) -> str:
    """Return an author's text as one sanitised line."""
    return literal(" ".join(text.split()), limit)


def _as_line(value: object) -> str:
    if isinstance(value, (list, Mapping)):
        raise ValueError("must be text")
    return make_line(str(value))


def _as_text(value: object) -> str | None:
    return _as_line(value) or None


def _as_names(value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of names")
    return tuple(name for item in items if (name := make_line(item)))


def _as_systems(value: object) -> tuple[str, ...]:
    names = (name.lower() for name in _as_names(value))
    return tuple(_SYSTEM_NAMES.get(name, name) for name in names)


def _as_tools(value: object) -> tuple[str, ...]:
    return tuple(_TOOL_NAME.findall(value)) if isinstance(value, str) else _as_names(value)


Name = Annotated[str, Parsed(lambda value: make_line(value, NAME_LIMIT))]
Description = Annotated[str, Parsed(lambda value: make_line(value, DESCRIPTION_LIMIT))]
Line = Annotated[str, Parsed(_as_line)]
Text = Annotated[str | None, Parsed(_as_text)]
Names = Annotated[tuple[str, ...], Parsed(_as_names)]
Systems = Annotated[tuple[str, ...], Parsed(_as_systems)]
Tools = Annotated[tuple[str, ...], Parsed(_as_tools)]


class InvocationFlags(Declared, rename="camel"):
    """Who may invoke the skill."""

    disable_model_invocation: bool = False
    allow_remote: bool = True


class Requires(Declared, rename="camel"):
    """Requirements that must be met before the skill is listed."""

    bins: Names = ()
    any_bins: Names = ()
    env: Names = ()
    config: Names = ()


class InstallWay(Declared, rename="camel"):
    """One way to install what the skill needs."""

    kind: Line
    id: Text = None
    label: Text = None
    bins: Names = ()
    os: Systems = ()
    formula: Text = None
    package: Text = None
    module: Text = None
    url: Text = None
    sha256: Text = None
    archive: Text = None
    extract: bool | None = None
    strip_components: int | None = None
    target_dir: Text = None


class Extras(Declared, rename="camel"):
    """The keys under `metadata.retinue` or `metadata.openclaw`."""

    always: bool = False
    emoji: Text = None
    homepage: Text = None
    skill_key: Text = None
    primary_env: Text = None
    os: Systems = ()
    requires: Requires = Requires()
    invocation: InvocationFlags = InvocationFlags()
    install: tuple[InstallWay, ...] = ()


class Declaration(Declared, rename="kebab"):
    """The keys of the front matter that Retinue uses; others are ignored."""

    accepts_attribute_names: ClassVar[bool] = True

    name: Name = ""
    description: Description = ""
    homepage: Text = None
    user_invocable: bool = True
    disable_model_invocation: bool = False
    command_dispatch: Text = None
    command_tool: Text = None
    command_arg_mode: Line = "raw"
    license: Text = None
    compatibility: Text = None
    allowed_tools: Tools = ()
    invocation: InvocationFlags = InvocationFlags()
    extras: Extras = Extras()


def read_declaration(text: str) -> Declaration:
    """Read the front matter of a skill's text; raise `SkillError` if it is invalid."""
    block, _ = split_front_matter(text)
    if block is None:
        raise SkillError("It does not start with front matter. Put `---`, the keys and `---` at the top.")
    fields = {key: value for key, value in _read_fields(block).items() if value is not None}
    try:
        fields["extras"] = _merge_extras(fields.pop("metadata", None))
        return decode(Declaration, fields)
    except DecodeError as error:
        problem = error.faults[0]
        where = ".".join(map(str, problem.path)).replace("extras", "metadata", 1)
        raise SkillError(f"Its `{where}` is invalid: {problem.message}.") from None


def _read_fields(block: str) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = dict(parse_yaml(block))
    except FrontMatterError as error:
        return _read_key_by_key(block, error)
    for key in _TEXT_KEYS & fields.keys():
        if not isinstance(fields[key], str):
            # A name such as 007 or null is used as written, not as YAML interprets it.
            fields[key] = _read_literal(block, key)
    return fields


def _read_key_by_key(block: str, failure: FrontMatterError) -> dict[str, Any]:
    """Read front matter that is not valid YAML, most often because of a colon in unquoted text.

    A value that is not YAML by itself is taken literally; anything else that cannot be read is an error.
    """
    heads = list(_TOP_KEY.finditer(block))
    keys = {head[1] for head in heads}
    if not len(keys) == len(heads) == len(_TOP_LINE.findall(block)) or len(heads) > _MAX_KEYS:
        raise SkillError(f"Its front matter cannot be read: {failure}") from None
    fields: dict[str, Any] = {}
    for head, end in zip(heads, [*(head.start() for head in heads[1:]), len(block)], strict=True):
        try:
            fields.update(parse_yaml(block[head.start() : end]))
        except FrontMatterError:
            if head[1] not in _TEXT_KEYS and head[1] != "metadata":
                raise SkillError(f"Its front matter cannot be read: {failure}") from None
            fields[head[1]] = _unquote(" ".join(block[head.end() : end].split()))
    return fields


def _read_literal(block: str, key: str) -> str:
    found = re.search(rf"^{key}[ \t]*:(.*)$", block, re.MULTILINE)
    return _unquote(found[1].strip()) if found else ""


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _merge_extras(metadata: object) -> dict[str, Any]:
    """Merge both namespaces; `retinue` takes precedence key by key."""
    spaces = _as_mapping(metadata)
    merged: dict[str, Any] = {}
    for namespace in _NAMESPACES:
        merged |= _as_mapping(spaces.get(namespace))
    return {key: value for key, value in merged.items() if value is not None}


def _as_mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping, also one written as JSON or as a flow mapping in a string; other values are ignored."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return {}
    try:
        read = json.loads(value)
    except (ValueError, RecursionError):
        try:
            read = parse_yaml(value)
        except FrontMatterError as error:
            raise SkillError(f"Its `metadata` cannot be read: {error}") from None
    return read if isinstance(read, Mapping) else {}


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
    sha256: str | None = None


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
    held: str = ""
    """Why its content may not be used until the owner accepts it; empty if it may."""

    @property
    def key(self) -> str:
        """The name under which `skills.entries` configures it."""
        return self.skill_key or self.name


class SkillProblem(Struct, frozen=True):
    """A problem with a file or folder; other skills are loaded nevertheless."""

    path: Path
    message: str


def parse_skill(data: bytes, location: Path, tier: SkillTier) -> Skill:
    """Parse a `SKILL.md`, or a Markdown file that is a command; raise `SkillError` if it is invalid."""
    text = _decode(data)
    is_command = location.name.lower() != "skill.md"
    declared = Declaration() if is_command and not text.startswith("---") else read_declaration(text)
    extras = declared.extras
    needs = extras.requires
    name = declared.name or make_line(location.stem if is_command else location.parent.name, NAME_LIMIT)
    if not name:
        raise SkillError("It has no name. Add a line `name: …` to its front matter.")
    description = declared.description or (f"The command {name}." if is_command else "")
    if not description:
        raise SkillError("It has no description. Add a line `description: …` to its front matter.")
    by_model = (declared.disable_model_invocation, declared.invocation.disable_model_invocation)
    return Skill(
        name=name,
        description=description,
        location=location,
        folder=location.parent,
        tier=tier,
        version=f"sha256:{hashlib.sha256(data).hexdigest()[:VERSION_DIGITS]}",
        homepage=declared.homepage or extras.homepage,
        user_invocable=declared.user_invocable,
        disable_model_invocation=is_command or any(by_model) or extras.invocation.disable_model_invocation,
        allow_remote=declared.invocation.allow_remote and extras.invocation.allow_remote,
        command_dispatch=declared.command_dispatch,
        command_tool=declared.command_tool,
        command_arg_mode=declared.command_arg_mode,
        license=declared.license,
        compatibility=declared.compatibility,
        allowed_tools=declared.allowed_tools,
        requirements=Requirements(extras.os, needs.bins, needs.any_bins, needs.env, needs.config),
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
        sha256=way.sha256,
    )
