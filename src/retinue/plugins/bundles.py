"""Bundles, plugins of other programs: their skills, commands, MCP servers and hook programs.

The layouts are those of Agent Plugins (`plugin.json`), Claude Code, Codex, Cursor and Open Plugins. Nothing in a bundle
is imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from retinue.core.errors import UsageError
from retinue.core.extension import ExtensionPoint
from retinue.plugins.manifest import MAX_BYTES, BundleParts, BundleProgram, PluginError, PluginManifest

LAYOUTS = {
    "claude": ".claude-plugin/plugin.json",
    "codex": ".codex-plugin/plugin.json",
    "cursor": ".cursor-plugin/plugin.json",
    "open-plugins": ".plugin/plugin.json",
    "agent-plugins": "plugin.json",
}
"""The manifests of bundles by format; the first that exists is read."""
HOOK_EVENTS = (
    "PreToolUse",
    "PostToolUse",
    "UserPromptSubmit",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "PreCompact",
)
"""The events of Claude Code for which hook programs are run."""
_ROOT = re.compile(r"\$\{(?:CLAUDE_PLUGIN_ROOT|CODEX_PLUGIN_ROOT|CURSOR_PLUGIN_ROOT|PLUGIN_ROOT)\}")
_DATA = re.compile(r"\$\{(?:CLAUDE_PLUGIN_DATA|PLUGIN_DATA)\}")
_DATA_VARIABLE = "${PLUGIN_DATA}"
_OTHER = re.compile(r"[^a-z0-9._-]+")
_MAX_SECONDS = 600.0


def find_bundle(folder: Path) -> tuple[str, Path | None] | None:
    """Return the format of the bundle in a folder and its manifest; None if there is no bundle.

    The bare layout of Claude Code has no manifest.
    """
    for name, path in LAYOUTS.items():
        if (folder / path).is_file():
            return name, folder / path
    bare = (folder / ".mcp.json", folder / "hooks" / "hooks.json")
    has_commands = any((folder / "commands").glob("*.md")) or any((folder / "skills").glob("*/SKILL.md"))
    is_bare = any(path.is_file() for path in bare) or has_commands
    return ("claude", None) if is_bare and not (folder / "__init__.py").exists() else None


def read_bundle(folder: Path, name: str = "") -> PluginManifest | None:
    """Read the bundle in a folder; None if there is none. Raise `PluginError` if it cannot be used.

    `name` is used if its manifest has none. Default: the name of the folder.
    """
    found = find_bundle(folder)
    if found is None:
        return None
    kind, path = found
    declared = _read_json(path) if path is not None else {}
    chosen = _OTHER.sub("-", str(declared.get("name") or name or folder.name).lower()).strip("-._")[:64]
    if not chosen:
        raise PluginError(f"the bundle in {folder} has no name; add `name` to its manifest")
    skills = tuple(_folders(folder, declared.get("skills"), "skills"))
    commands = tuple(_folders(folder, declared.get("commands"), "commands"))
    servers, refused = _read_servers(folder, declared)
    programs, unknown = _read_programs(folder, declared)
    notes = (*refused, *unknown)
    if not (skills or commands or servers or programs):
        raise PluginError(f"the {kind} bundle in {folder} has no skills, commands, MCP servers or hooks")
    return PluginManifest(
        chosen,
        str(declared.get("version") or ""),
        str(declared.get("description") or ""),
        capabilities={ExtensionPoint.SKILLS: {}},
        skills=skills,
        path=path or folder,
        bundle=BundleParts(kind, commands, servers, programs, notes),
    )


def plugin_variables(root: Path, data: Path) -> dict[str, str]:
    """Return the variables of the programs of a bundle; `data` is the folder that stays when the bundle is updated."""
    names = {"ROOT": str(root), "DATA": str(data)}
    return {f"{prefix}PLUGIN_{name}": path for prefix in ("", "CLAUDE_") for name, path in names.items()}


def fill_data(server: Mapping[str, Any], data: Path) -> dict[str, Any]:
    """Return the settings of a server of a bundle with the folder of the bundle's data, which it may change."""
    return {name: _replace(value, _DATA, str(data)) for name, value in server.items()}


def _replace(value: Any, variable: re.Pattern[str], text: str) -> Any:
    match value:
        case str():
            return variable.sub(lambda _: text, value)
        case dict():
            return {name: _replace(below, variable, text) for name, below in value.items()}
        case list():
            return [_replace(below, variable, text) for below in value]
        case _:
            return value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PluginError(f"{path} is larger than {MAX_BYTES:,} bytes")
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PluginError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise PluginError(f"{path} is not a JSON object")
    return found


def _inside(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise PluginError(f"its manifest names '{name}', which is outside its folder")
    return path


def _folders(folder: Path, declared: Any, usual: str) -> Iterator[Path]:
    """Return the folders that a manifest names, besides the usual one."""
    names = [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []
    found = dict.fromkeys(_inside(folder, str(name)) for name in (usual, *names))
    return (path for path in found if path.is_dir())


def _read_servers(folder: Path, declared: Mapping[str, Any]) -> tuple[dict[str, Mapping[str, Any]], tuple[str, ...]]:
    from retinue.toolkit.mcp.import_servers import read_servers, translate_servers

    given = declared.get("mcpServers", declared.get("mcp_servers"))
    path = _inside(folder, given) if isinstance(given, str) else folder / ".mcp.json"
    try:
        if isinstance(given, dict):
            found = translate_servers(given, path)
        elif path.is_file():
            found = read_servers(path)
        else:
            return {}, ()
    except UsageError as error:
        raise PluginError(str(error)) from None
    root = folder.resolve()
    servers = {
        name: _replace(server if "url" in server else _with_folders(server, root), _ROOT, str(root))
        for name, server in found.servers.items()
    }
    return servers, tuple(f"the MCP server {name}: {problem}" for name, problem in found.refused.items())


def _with_folders(server: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return the settings of a program of a bundle, which reads the bundle and keeps files in its data folder."""
    variables = plugin_variables(root, Path(_DATA_VARIABLE))
    folders = {"cwd": str(root), "readPaths": [str(root)], "writePaths": [_DATA_VARIABLE]}
    return {**folders, **server, "env": {**variables, **server.get("env", {})}}


def _read_programs(folder: Path, declared: Mapping[str, Any]) -> tuple[tuple[BundleProgram, ...], tuple[str, ...]]:
    given = declared.get("hooks")
    if isinstance(given, dict):
        events = given.get("hooks", given)
    else:
        path = _inside(folder, given) if isinstance(given, str) else folder / "hooks" / "hooks.json"
        if not path.is_file():
            return (), ()
        events = _read_json(path).get("hooks", {})
    if not isinstance(events, dict):
        raise PluginError("its hooks are not an object of events")
    programs: list[BundleProgram] = []
    notes: list[str] = []
    for event, groups in events.items():
        if event not in HOOK_EVENTS:
            notes.append(f"the hook event {event} does not exist here")
            continue
        programs += _programs_of(event, groups, folder)
    return tuple(programs), tuple(notes)


def _programs_of(event: str, groups: Any, folder: Path) -> Iterator[BundleProgram]:
    for group in groups if isinstance(groups, list) else []:
        if not isinstance(group, dict):
            continue
        given = str(group.get("matcher") or "")
        matcher = "" if given == "*" else given
        try:
            re.compile(matcher)
        except re.error as error:
            raise PluginError(f"the matcher '{matcher}' of its hook {event} is not a pattern: {error}") from None
        for each in group.get("hooks", []):
            if isinstance(each, dict) and each.get("type", "command") == "command" and each.get("command"):
                limit = each.get("timeout")
                seconds = min(float(limit), _MAX_SECONDS) if isinstance(limit, int | float) and limit > 0 else 60.0
                command = _replace(str(each["command"]), _ROOT, str(folder.resolve()))
                yield BundleProgram(event, command, folder, matcher, seconds)
