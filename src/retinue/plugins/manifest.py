"""The manifest of a plugin, `retinue.plugin.json`: everything that is known about it without importing it.

OpenClaw's `openclaw.plugin.json` is read as well. Its code is JavaScript and cannot run here, so only what does not
depend on the language is used: the folders of skills.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct, field

from retinue import __version__
from retinue.core.envelope import Capabilities
from retinue.core.errors import RetinueError
from retinue.core.extension import ExtensionPoint, Slot
from retinue.structs.declare import Declared, UnknownKeys, declare
from retinue.structs.decode import DecodeError, decode

MANIFEST_NAME = "retinue.plugin.json"
OPENCLAW_NAME = "openclaw.plugin.json"
MAX_BYTES = 256_000
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_COMPARISON = re.compile(r"(>=|<=|==|!=|~=|\^|>|<|=)?\s*v?(\d+(?:\.\d+)*)")


class PluginError(RetinueError):
    """A plugin cannot be used; the message completes a sentence that starts with its name."""


class _ManifestPart(Declared, rename="camel"):
    unknown_keys: ClassVar[UnknownKeys] = "forbid"


class DeclaredExtension(_ManifestPart):
    """An extension in a manifest; a text instead of an object is its target."""

    target: str = ""
    """`package.module:attribute`; if it is empty, `retinue_register` registers the extension."""
    summary: str = ""
    usage: str = ""
    owner_only: bool = False
    scope: str = ""
    verbs: tuple[str, ...] = declare(("GET",), other_names=("methods",))
    priority: int = 0
    settings: dict[str, Any] | str | None = None
    """For a channel: a JSON Schema of its own keys, or a target that is a class of settings."""
    capabilities: tuple[Literal["media", "reactions", "buttons", "threads", "typing"], ...] = ()
    max_text: int = declare(Capabilities().max_text, ge=1)

    @classmethod
    def _prepare(cls, data: Any) -> Any:
        return {"target": data} if isinstance(data, str) else data


class ToolMetadata(_ManifestPart):
    """What a tool of a plugin does; without metadata its effects count as unknown."""

    read_only: bool = False
    side_effects: bool = declare(True, other_names=("sideEffecting",))
    replay_safe: bool = False

    @property
    def has_effects(self) -> bool:
        return self.side_effects and not self.read_only


class PluginConfig(_ManifestPart):
    """The settings of a plugin: a JSON Schema, or the path of one below the manifest, and default values."""

    schema: dict[str, Any] | str | None = None
    defaults: dict[str, Any] = declare({})


class PluginRequirements(_ManifestPart):
    """What must be present for a plugin to work."""

    retinue: str = ""
    python: str = ""
    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


class _PluginFile(_ManifestPart):
    """The content of `retinue.plugin.json`."""

    name: str = declare("", other_names=("id",))
    version: str = ""
    description: str = ""
    author: Any = None
    homepage: str = ""
    entry: str = ""
    capabilities: dict[str, Any] = declare({})
    slots: Any = None
    config: PluginConfig = PluginConfig()
    requires: PluginRequirements = PluginRequirements()
    secret_inputs: tuple[str, ...] = ()
    tool_metadata: dict[str, ToolMetadata] = declare({})


class BundleProgram(Struct, frozen=True):
    """A program that a bundle of Claude Code runs for an event; `matcher` is a pattern of tools."""

    event: str
    command: str
    folder: Path
    matcher: str = ""
    seconds: float = 60.0


class BundleParts(Struct, frozen=True):
    """What a bundle has besides skills: folders of commands, MCP servers, and hook programs."""

    format: str = ""
    commands: tuple[Path, ...] = ()
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    programs: tuple[BundleProgram, ...] = ()
    notes: tuple[str, ...] = ()
    """What of it is not used, and why."""


class PluginManifest(Struct, frozen=True):
    """What a plugin declares. `capabilities` is None if it has no manifest: then it may register anything."""

    id: str
    version: str = ""
    description: str = ""
    entry: str = ""
    """The module with `retinue_register`; empty if the manifest declares everything."""
    capabilities: Mapping[ExtensionPoint, Mapping[str, DeclaredExtension]] | None = None
    slots: frozenset[Slot] = frozenset()
    config_schema: Mapping[str, Any] | None = None
    config_defaults: Mapping[str, Any] = field(default_factory=dict)
    requires: PluginRequirements = PluginRequirements()
    secret_inputs: tuple[str, ...] = ()
    tools: Mapping[str, ToolMetadata] = field(default_factory=dict)
    skills: tuple[Path, ...] = ()
    path: Path | None = None
    bundle: BundleParts = BundleParts()

    @property
    def declared(self) -> Iterator[tuple[ExtensionPoint, str, DeclaredExtension]]:
        """Every extension that the manifest names."""
        for point, named in (self.capabilities or {}).items():
            for name, extension in named.items():
                yield point, name, extension


PROMPT_HOOKS = ("agent:bootstrap", "before_prompt_build")


def list_declared(manifest: PluginManifest) -> tuple[str, ...]:
    """Return what a manifest says that the plugin registers, as text."""
    names = (
        f"{point} {name}" if name else str(point)
        for point, named in (manifest.capabilities or {}).items()
        for name in (named or [""])
        if point is not ExtensionPoint.SKILLS
    )
    bundle = manifest.bundle
    brought = (
        *(f"commands {path.name}" for path in bundle.commands),
        *(f"mcp server {name}: {_describe_server(server)}" for name, server in bundle.servers.items()),
        *(f"hook program {each.event}: {each.command}" for each in bundle.programs),
    )
    slots = (f"slot {slot}" for slot in sorted(manifest.slots))
    return (*names, *(f"skills {path.name}" for path in manifest.skills), *brought, *slots)


def _describe_server(server: Mapping[str, Any]) -> str:
    return str(server.get("url") or " ".join(map(str, (server.get("command"), *server.get("args", ())))))


def describe_rights(manifest: PluginManifest) -> tuple[str, ...]:
    """Return what a plugin needs and what the owner has to grant, as lines."""
    capabilities = manifest.capabilities or {}
    hooks = capabilities.get(ExtensionPoint.HOOKS, {})
    routes = capabilities.get(ExtensionPoint.HTTP, {})
    effects = [name for name, tool in manifest.tools.items() if tool.has_effects]
    lines = (
        ("to run programs (hooks.allowPrograms)", sorted({each.event for each in manifest.bundle.programs})),
        ("to change prompts (hooks.allowPromptInjection)", sorted(hooks.keys() & {*PROMPT_HOOKS})),
        ("to choose models (hooks.allowModelOverride)", sorted(hooks.keys() & {"before_model_resolve"})),
        ("to see and change tool calls", sorted(hooks.keys() & {"before_tool_call", "after_tool_call"})),
        ("to see messages", sorted(hooks.keys() & {"message_received", "message_sending"})),
        ("HTTP routes", [f"{name} (scope {each.scope})" for name, each in routes.items()]),
        ("tools with side effects", effects),
        ("secrets", list(manifest.secret_inputs)),
        ("programs", list(manifest.requires.bins)),
        ("environment variables", list(manifest.requires.env)),
    )
    return tuple(f"{what}: {', '.join(names)}" for what, names in lines if names)


def find_manifest(folder: Path) -> Path | None:
    """Return the manifest in a folder; None if there is none."""
    return next((path for name in (MANIFEST_NAME, OPENCLAW_NAME) if (path := folder / name).is_file()), None)


def read_manifest(path: Path) -> PluginManifest:
    """Read and check a manifest; raise `PluginError` with what is wrong and where."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PluginError(f"its manifest is larger than {MAX_BYTES:,} bytes: {path}")
        data = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise PluginError(f"its manifest {path} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise PluginError(f"its manifest {path} is not a JSON object")
    if path.name == OPENCLAW_NAME and not _is_neutral(data):
        return _read_openclaw(data, path)
    try:
        parsed = decode(_PluginFile, data)
    except DecodeError as error:
        raise PluginError(f"its manifest {path} is not valid: {error}") from None
    return _check_manifest(parsed, path)


def _check_manifest(parsed: _PluginFile, path: Path) -> PluginManifest:
    if not _ID.fullmatch(parsed.name):
        raise PluginError(f"the name in {path} must have 1 to 64 lower-case letters, digits, '-', '_' or '.'")
    capabilities = _read_capabilities(parsed.capabilities, path)
    skills = tuple(_inside(path, name) for name in capabilities.pop(ExtensionPoint.SKILLS, {}))
    return PluginManifest(
        parsed.name,
        parsed.version,
        parsed.description,
        parsed.entry,
        capabilities | ({ExtensionPoint.SKILLS: {}} if skills else {}),
        _read_slots(parsed.slots, path),
        _read_schema(parsed.config.schema, path),
        parsed.config.defaults,
        parsed.requires,
        parsed.secret_inputs,
        parsed.tool_metadata,
        skills,
        path,
    )


def _read_capabilities(data: Mapping[str, Any], path: Path) -> dict[ExtensionPoint, dict[str, DeclaredExtension]]:
    """Read `capabilities`: for each extension point a list of names, or an object of names and targets."""
    found: dict[ExtensionPoint, dict[str, DeclaredExtension]] = {}
    for name, value in data.items():
        if name not in tuple(ExtensionPoint):
            near = get_close_matches(name, [*ExtensionPoint], n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(ExtensionPoint)}"
            raise PluginError(f"{path} declares the unknown capability '{name}'; {hint}")
        if value is True:
            value = {}
        if isinstance(value, list):
            value = dict.fromkeys(map(str, value), "")
        if not isinstance(value, dict):
            raise PluginError(f"capabilities.{name} in {path} must be a list of names, an object, or true")
        try:
            found[ExtensionPoint(name)] = {key: decode(DeclaredExtension, each) for key, each in value.items()}
        except DecodeError as error:
            raise PluginError(f"capabilities.{name} in {path} is not valid: {error}") from None
    return found


def _read_slots(data: Any, path: Path) -> frozenset[Slot]:
    """Read `slots`: a list of names, or an object of names and booleans as OpenClaw has it."""
    names = [name for name, claimed in data.items() if claimed] if isinstance(data, dict) else data or []
    if not isinstance(names, list) or any(name not in tuple(Slot) for name in names):
        raise PluginError(f"slots in {path} may contain only {', '.join(Slot)}")
    return frozenset(map(Slot, names))


def _read_schema(schema: dict[str, Any] | str | None, path: Path) -> Mapping[str, Any] | None:
    if not isinstance(schema, str):
        return schema
    try:
        found = json.loads(_inside(path, schema).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PluginError(f"config.schema in {path} names a file that cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise PluginError(f"config.schema in {path} is not a JSON object")
    return found


def _inside(manifest: Path, name: str) -> Path:
    """Return a path below the folder of a manifest; one that leads outside is an error."""
    folder = manifest.parent.resolve()
    path = (folder / name).resolve()
    if PurePosixPath(name).is_absolute() or not path.is_relative_to(folder):
        raise PluginError(f"{manifest} names '{name}', which is outside its folder")
    return path


def _is_neutral(data: Mapping[str, Any]) -> bool:
    """Return whether a manifest with OpenClaw's name describes a plugin of Retinue."""
    return "entry" in data or any(isinstance(each, dict) for each in (data.get("capabilities") or {}).values())


def _read_openclaw(data: Mapping[str, Any], path: Path) -> PluginManifest:
    """Read what does not depend on the language from a manifest of OpenClaw."""
    name = str(data.get("id") or data.get("name") or path.parent.name).lower()
    folders = data.get("skills") or (data.get("capabilities") or {}).get("skills") or []
    skills = tuple(_inside(path, str(each)) for each in folders if isinstance(folders, list))
    if not _ID.fullmatch(name):
        raise PluginError(f"the id in {path} must have 1 to 64 lower-case letters, digits, '-', '_' or '.'")
    if not skills:
        raise PluginError("it is an OpenClaw plugin in JavaScript without skills; its code cannot run here")
    version, about = str(data.get("version") or ""), str(data.get("description") or "")
    return PluginManifest(name, version, about, capabilities={ExtensionPoint.SKILLS: {}}, skills=skills, path=path)


def unmet_requirement(requires: PluginRequirements, environment: Mapping[str, str]) -> str | None:
    """Return the first requirement that is not met, as a sentence part; None if all are."""
    python = ".".join(map(str, sys.version_info[:3]))
    for what, version, wanted in (("Retinue", __version__, requires.retinue), ("Python", python, requires.python)):
        if not satisfies(version, wanted):
            return f"it needs {what} {wanted}, and this is {version}"
    for program in requires.bins:
        if shutil.which(program, path=environment.get("PATH")) is None:
            return f"it needs the program '{program}'; install it"
    for variable in requires.env:
        if not environment.get(variable):
            return f"it needs the environment variable {variable}; set it"
    return None


def satisfies(version: str, wanted: str) -> bool:
    """Return whether a version is in a range such as `>=0.2,<1`; also `^1.2` and `~=1.2`. An empty range has all."""
    actual = _numbers(version)
    for operator, text in _COMPARISON.findall(wanted):
        bound = _numbers(text)
        have, want = _pad(actual, bound)
        holds = {
            ">=": have >= want,
            "<=": have <= want,
            ">": have > want,
            "<": have < want,
            "!=": have != want,
            "~=": have >= want and actual[: max(len(bound) - 1, 1)] == bound[: max(len(bound) - 1, 1)],
            "^": have >= want and actual[:1] == bound[:1],
        }.get(operator, have[: len(bound)] == bound)
        if not holds:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else (0,)


def _pad(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    length = max(len(first), len(second))
    return first + (0,) * (length - len(first)), second + (0,) * (length - len(second))
