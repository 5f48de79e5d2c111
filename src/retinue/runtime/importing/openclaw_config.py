"""The configuration of an OpenClaw home with our keys: renamed, checked, without secrets unless the owner agreed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from retinue.config.edit import Change, change_values
from retinue.config.keypath import Step, format_key_path, locate, parse_path
from retinue.config.keys import is_secret
from retinue.config.load import check_text
from retinue.config.sources import Problem
from retinue.core.errors import UsageError
from retinue.core.keys import parse_agent_id
from retinue.runtime.importing.openclaw_home import OpenClawHome, read_json, rows
from retinue.runtime.importing.plan import Omission, mapping
from retinue.storage.files import make_private_dir, write_atomic
from retinue.storage.home_paths import HomePaths

RENAMED = (
    ("memorySearch", "agents.defaults.memorySearch"),
    ("memory.search", "agents.defaults.memorySearch"),
    ("heartbeat", "agents.defaults.heartbeat"),
    ("defaultModel", "agents.defaults.model"),
    ("agent", "agents.defaults"),
    ("routing.bindings", "bindings"),
    ("routing.queue", "messages.queue"),
    ("routing.groupChat", "messages.groupChat"),
    ("routing.allowFrom", "channels.whatsapp.allowFrom"),
    ("tools.bash", "tools.exec"),
    ("tools.exec.timeoutSeconds", "tools.exec.timeoutSec"),
    ("session.resetByType.dm", "session.resetByType.direct"),
    ("session.maintenance.pruneDays", "session.maintenance.pruneAfter"),
    ("cron.failureDestination", "cron.failureAlert"),
    ("attachments", "media"),
)
"""Keys of older and newer versions of OpenClaw, and the names that Retinue has for them."""

_MADE_FOR_THE_MACHINE = (
    ("gateway", "Retinue has its own port, token and address"),
    ("meta", "it describes OpenClaw"),
    ("wizard", "it describes OpenClaw"),
    ("update", "Retinue is updated in its own way"),
    ("plugins", "plugins of OpenClaw are written in JavaScript"),
    ("talk", "there is no voice mode"),
    ("ui", "the control page has its own settings"),
    ("discovery", "it describes OpenClaw"),
    ("canvasHost", "it describes OpenClaw"),
    ("nodeHost", "it describes OpenClaw"),
)
_WORKSPACES = "the workspace is copied into the home of Retinue"
_MAX_ROUNDS = 200
_REFERENCE = re.compile(r"\$\{[A-Z_][A-Z0-9_]*\}")


class ConvertedConfig(Struct):
    """The configuration in our form; `secrets` are the paths of literal secrets in it."""

    values: dict[str, Any] = field(default_factory=dict)
    omissions: list[Omission] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)


def convert_config(home: OpenClawHome, target: HomePaths, *, with_secrets: bool) -> ConvertedConfig:
    """Return the configuration with what Retinue understands of it."""
    values = deepcopy(dict(home.config))
    done = ConvertedConfig(values)
    for name, why in _MADE_FOR_THE_MACHINE:
        if values.pop(name, None) is not None:
            done.omissions.append(Omission(name, why))
    _list_agents(values, home)
    for old, new in RENAMED:
        _move(values, old, new)
    _drop_workspaces(values)
    _convert_servers(values)
    _add_allow_lists(home, values)
    _handle_secrets(done, with_secrets=with_secrets)
    _remove_faulty(done, target)
    _remove_empty(values)
    return done


def _list_agents(values: dict[str, Any], home: OpenClawHome) -> None:
    """Write the agents as a list; if none is configured, those that have a folder."""
    found = home.agents
    section = values.setdefault("agents", {})
    if not isinstance(section, dict):
        return
    section.pop("entries", None)
    section.pop("list", None)
    if len(found) > 1 or found[0].entry:
        is_configured = any(agent.entry for agent in found)
        listed = [agent for agent in found if agent.entry or not is_configured or agent.is_default]
        section["list"] = [{**agent.entry, "id": agent.id} for agent in listed]


def _move(values: dict[str, Any], old: str, new: str) -> None:
    """Move a value to the name that is used now; a value that is there already wins."""
    *above, last = old.split(".")
    node: Any = values
    for name in above:
        node = node.get(name) if isinstance(node, dict) else None
    if not isinstance(node, dict) or last not in node:
        return
    found = node.pop(last)
    *above, last = new.split(".")
    node = values
    for name in above:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            return
    node[last] = {**found, **node[last]} if _are_objects(found, node.get(last)) else node.get(last, found)


def _are_objects(*values: object) -> bool:
    return all(isinstance(value, dict) for value in values)


def _drop_workspaces(values: dict[str, Any]) -> None:
    """Remove the paths of folders that are copied to the places where Retinue expects them."""
    section = mapping(values.get("agents"))
    for entry in (mapping(section.get("defaults")), *map(mapping, section.get("list") or ())):
        for name in ("workspace", "agentDir"):
            if isinstance(entry, dict):
                entry.pop(name, None)
    cron = values.get("cron")
    if isinstance(cron, dict):
        cron.pop("store", None)
    session = values.get("session")
    if isinstance(session, dict):
        session.pop("store", None)


def _convert_servers(values: dict[str, Any]) -> None:
    for server in mapping(mapping(values.get("mcp")).get("servers")).values():
        if not isinstance(server, dict):
            continue
        if "disabled" in server:
            server.setdefault("enabled", server.pop("disabled") is not True)
        for old, new in (("timeout", "requestTimeoutMs"), ("connectTimeout", "connectionTimeoutMs")):
            if old in server:
                server.setdefault(new, server.pop(old))


def _add_allow_lists(home: OpenClawHome, values: dict[str, Any]) -> None:
    """Add the senders that were accepted by pairing to the lists of their channels."""
    for channel, senders in read_allow_lists(home).items():
        section = values.setdefault("channels", {})
        node = section.setdefault(channel, {}) if isinstance(section, dict) else None
        if isinstance(node, dict):
            listed = node.get("allowFrom")
            known = [str(each) for each in listed] if isinstance(listed, list) else []
            node["allowFrom"] = list(dict.fromkeys((*known, *senders)))


def read_allow_lists(home: OpenClawHome) -> dict[str, list[str]]:
    """Return the senders that OpenClaw accepted by pairing, for each channel."""
    found: dict[str, list[str]] = {}
    for row in rows(home.state(), "SELECT channel_key, entry FROM channel_pairing_allow_entries ORDER BY sort_order"):
        found.setdefault(str(row["channel_key"]), []).append(str(row["entry"]))
    folder = home.path / "credentials"
    for file in sorted(folder.glob("*-allowFrom.json")) if folder.is_dir() else ():
        channel = file.name.removesuffix("-allowFrom.json").partition("-")[0]
        listed = mapping(read_json(file)).get("allowFrom")
        if not isinstance(listed, list):
            home.faults.append(Omission(f"credentials/{file.name}", "it cannot be read as an allow list"))
            continue
        found.setdefault(channel, []).extend(str(each) for each in listed)
    return {channel: list(dict.fromkeys(senders)) for channel, senders in found.items()}


def _handle_secrets(done: ConvertedConfig, *, with_secrets: bool) -> None:
    """Collect the literal secrets; without the owner's consent remove them."""
    for path in list(_literal_secrets(done.values, ())):
        name = format_key_path(path)
        done.secrets.append(name)
        if not with_secrets:
            _remove(done.values, path)
            done.omissions.append(Omission(name, "it is a secret; --with-credentials copies secrets"))


def _literal_secrets(node: object, path: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    if isinstance(node, dict):
        for name, below in node.items():
            yield from _literal_secrets(below, (*path, str(name)))
    elif isinstance(node, list):
        for index, below in enumerate(node):
            yield from _literal_secrets(below, (*path, index))
    elif isinstance(node, str) and node and is_secret(path) and not _REFERENCE.fullmatch(node):
        yield path


def _remove_faulty(done: ConvertedConfig, target: HomePaths) -> None:
    """Remove each key that Retinue would refuse or ignore, until the rest is valid."""
    for _ in range(_MAX_ROUNDS):
        text = json.dumps(done.values, ensure_ascii=False, indent=2)
        problems = check_text(target, target.config_file, text, _Any(os.environ)).problems
        removed = sum(_remove_problem(done, problem) for problem in reversed(problems) if problem.path)
        if not removed:
            return


def _remove_problem(done: ConvertedConfig, problem: Problem) -> bool:
    try:
        path = locate(parse_path(problem.path), done.values)
    except UsageError:
        return False
    if not _remove(done.values, path):
        return False
    done.omissions.append(Omission(problem.path, problem.message))
    return True


class _Any(dict[str, str]):
    """An environment in which every variable has a value: whether it is set here does not matter for an import."""

    def __missing__(self, _name: str) -> str:
        return "1"

    def __contains__(self, _name: object) -> bool:
        return True


def _remove(values: Any, path: Sequence[Step]) -> bool:
    node = values
    for step in path[:-1]:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            return False
    try:
        del node[path[-1]]
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _remove_empty(values: Any) -> None:
    if isinstance(values, dict):
        for name in list(values):
            _remove_empty(values[name])
            if values[name] == {} or values[name] == []:
                del values[name]
    elif isinstance(values, list):
        for item in values:
            _remove_empty(item)


def select_agent(converted: ConvertedConfig, agent: str) -> None:
    """Keep of a configuration only the entry of one agent."""
    listed = mapping(converted.values.get("agents")).get("list") or ()
    entries = [entry for entry in listed if mapping(entry).get("id") == agent]
    converted.values.clear()
    if entries:
        converted.values["agents"] = {"list": [{**entries[0], "default": False}]}


def write_config(converted: Mapping[str, Any], target: HomePaths) -> tuple[list[str], list[Omission]]:
    """Add the keys to the configuration of the home; what is set there already stays.

    Return the paths that were set, and those that were left as they are.
    """
    file = target.config_file
    if not file.is_file() or not file.read_bytes().strip():
        make_private_dir(file.parent)
        write_atomic(file, (json.dumps(converted, ensure_ascii=False, indent=2) + "\n").encode())
        return [format_key_path(path) for path, _ in _leaves(converted, ())], []
    from retinue.config.load import load_config

    current = load_config(target, os.environ).tree.plain
    changes: list[Change] = []
    kept: list[Omission] = []
    for path, value in _leaves(converted, ()):
        if path == ("agents", "list"):
            value = _merge_agents(_value_at(current, path), value)
        elif (there := _value_at(current, path)) is not None:
            if there != value:
                kept.append(Omission(format_key_path(path), "it has another value here, which stays"))
            continue
        if value != _value_at(current, path):
            changes.append(Change(format_key_path(path), json.dumps(value, ensure_ascii=False)))
    if changes:
        change_values(target, changes, os.environ, who="import")
    return [change.path for change in changes], kept


def _merge_agents(here: Any, imported: Any) -> list[Any]:
    listed = list(here) if isinstance(here, list) else []
    known = {parse_agent_id(str(mapping(each).get("id"))) for each in listed if mapping(each).get("id")}
    has_default = bool(listed) or not isinstance(here, list)
    added = [each for each in imported if parse_agent_id(str(each["id"])) not in known]
    if listed and has_default:
        added = [{name: value for name, value in each.items() if name != "default"} for each in added]
    return [*listed, *added]


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, Mapping) and node:
        for name, below in node.items():
            yield from _leaves(below, (*path, name))
    else:
        yield path, node


def _value_at(node: Any, path: Sequence[str]) -> Any:
    for name in path:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def read_env_file(folder: Path) -> dict[str, str]:
    """Return the variables of the `.env` file beside the configuration."""
    try:
        lines = (folder / ".env").read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()):
            found[name.strip()] = value.strip().strip("\"'")
    return found
