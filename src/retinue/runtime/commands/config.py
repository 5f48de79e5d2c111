"""The configuration, as the owner changes it from a chat and as agents change it with a tool."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.config.edit import Change, change_values, check_agent_change, set_value, unset_value
from retinue.config.explain import effective_value, explain
from retinue.core.errors import ConfigError, RetinueError, UsageError
from retinue.core.keys import AgentId
from retinue.runtime.agents.agent import GatewayControl
from retinue.runtime.home import Home
from retinue.storage.files import make_private_dir
from retinue.storage.files.descriptors import PRIVATE_FILE

CONFIG_USAGE = (
    "Usage: /config <key>, as in /config agents.defaults.model; /config set <key> <value>; /config unset <key>."
)
CONFIG_OFF = "Settings cannot be changed from a chat here. `retinue config set commands.config true` allows it."
PLUGINS_USAGE = "Usage: /plugins, /plugins enable <name>, /plugins disable <name>."
PLUGINS_OFF = (
    "Plugins cannot be enabled or disabled from a chat here. `retinue config set commands.plugins true` allows it."
)
NOT_FROM_COMMANDS = "A command that an agent runs cannot do this. Do it yourself."
CHANGED_WITHOUT_GATEWAY = "No gateway runs in this process; the change takes effect at the next start."


def answer_config(home: Home, rest: str, who: str) -> str:
    """Show a setting, or change one if `commands.config` allows it; `who` is recorded in the audit log."""
    verb, _, words = rest.partition(" ")
    try:
        match verb.lower():
            case "":
                return CONFIG_USAGE
            case "set" | "unset" if words.strip():
                return _change(home, verb.lower(), words.strip(), who)
        found = explain(home.loaded, rest)
    except RetinueError as error:
        return str(error)
    return f"{found.key} = {found.value!r} ({found.origin})\n{found.documentation}"


def _change(home: Home, verb: str, words: str, who: str) -> str:
    if home.is_in_command:
        return NOT_FROM_COMMANDS
    if not home.config.commands.config:
        return CONFIG_OFF
    key, _, value = words.partition(" ")
    if verb == "unset":
        edited = unset_value(home.paths, key, home.environment, who=who)
    elif value.strip():
        edited = set_value(home.paths, key, value.strip(), home.environment, who=who)
    else:
        return CONFIG_USAGE
    warnings = "".join(f"\n{problem}" for problem in edited.problems)
    if not edited.changed:
        return f"{edited.path} is unchanged."
    return f"Changed {edited.path}. `retinue config explain {edited.path}` shows when it takes effect.{warnings}"


def answer_plugins(home: Home, rest: str, who: str) -> str:
    """List the plugins, or switch one if `commands.plugins` allows it; `who` is recorded in the audit log."""
    known = home.registry.plugins
    match rest.split():
        case [] | ["list"]:
            lines = (f"{each.name}: {each.state}{f', {each.because}' if each.because else ''}" for each in known)
            return "\n".join(lines) or "No plugins are installed."
        case ["enable" | "disable" as verb, name]:
            if home.is_in_command:
                return NOT_FROM_COMMANDS
            if not home.config.commands.plugins:
                return PLUGINS_OFF
            if name not in {each.name for each in known}:
                return f"There is no plugin '{name}'. /plugins lists them."
            return _switch_plugin(home, name, who, on=verb == "enable")
    return PLUGINS_USAGE


def _switch_plugin(home: Home, name: str, who: str, *, on: bool) -> str:
    key = f"plugins.entries[{json.dumps(name)}].enabled"
    try:
        edited = set_value(home.paths, key, json.dumps(on), home.environment, who=who)
    except RetinueError as error:
        return str(error)
    state = "on" if on else "off"
    return (
        f"{name} is {state}; a running gateway applies this at once."
        if edited.changed
        else f"{name} was already {state}."
    )


class ConfigTool(Struct, frozen=True):
    """The configuration of a home for agents; without a gateway in this process, changes are only written."""

    home: Home
    process: GatewayControl | None = None

    def get(self, key: str | None) -> dict[str, Any]:
        return {"value": effective_value(self.home.loaded, key), "hash": self._hash()}

    def schema(self, key: str) -> dict[str, Any]:
        return explain(self.home.loaded, key).as_dict()

    def check(self, changes: Mapping[str, Any], base_hash: str | None) -> None:
        for key, value in changes.items():
            check_agent_change(key, value)
        if base_hash != self._hash():
            raise ConfigError("The configuration has changed since `get`. Call `get` again and use its hash.")

    async def patch(self, changes: Mapping[str, Any], base_hash: str | None, agent: AgentId) -> dict[str, Any]:
        self.check(changes, base_hash)
        wanted = [
            Change(key, None if value is None else json.dumps(value, ensure_ascii=False))
            for key, value in changes.items()
        ]
        home, environment = self.home.paths, self.home.environment
        edits = change_values(home, wanted, environment, who=f"agent {agent}")
        return {**await self.apply(), "changed": [edit.path for edit in edits if edit.changed]}

    async def apply(self) -> dict[str, Any]:
        if self.process is None:
            return {"hash": self._hash(), "note": CHANGED_WITHOUT_GATEWAY}
        return dict(await self.process.apply())

    async def restart(self, reason: str) -> dict[str, Any]:
        if self.process is None:
            raise UsageError("No gateway runs in this process, so there is nothing to restart.")
        self.process.restart(f"the agent asked for it: {reason[:200] or 'no reason given'}")
        return {"restarting": True, "note": "The gateway restarts when the turn has ended."}

    async def update(self) -> dict[str, Any]:
        if self.process is None:
            raise UsageError("No gateway runs in this process. The owner can update with `retinue update`.")
        if os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid()):
            raise UsageError(
                "systemd runs this gateway and would end the update with it. The owner can run `retinue update`."
            )
        return {"started": True, "log": str(start_update(self.home))}

    def _hash(self) -> str:
        with suppress(OSError):
            return hashlib.sha256(self.home.paths.config_file.read_bytes()).hexdigest()
        return hashlib.sha256(b"").hexdigest()


def start_update(home: Home) -> Path:
    """Start `retinue update` as a process of its own, because it stops this gateway; return the file of its output."""
    output = home.paths.log_file.with_name("update.log")
    make_private_dir(output.parent)
    command = [sys.executable, "-m", "retinue", "update", "--yes", "--home", str(home.paths.path)]
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True
        )
    finally:
        os.close(descriptor)
    return output
