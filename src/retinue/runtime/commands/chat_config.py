"""The configuration and the plugins, as the owner shows and changes them from a chat."""

from __future__ import annotations

import json

from retinue.config.edit import set_value, unset_value
from retinue.config.explain import explain
from retinue.core.errors import RetinueError
from retinue.runtime.home import Home

USAGE = "Usage: /config <key>, as in /config agents.defaults.model; /config set <key> <value>; /config unset <key>."
SWITCHED_OFF = "Settings cannot be changed from a chat here. `retinue config set commands.config true` allows it."
PLUGINS_USAGE = "Usage: /plugins, /plugins enable <name>, /plugins disable <name>."
PLUGINS_OFF = (
    "Plugins cannot be enabled or disabled from a chat here. `retinue config set commands.plugins true` allows it."
)
NOT_FROM_COMMANDS = "A command that an agent runs cannot do this. Run it yourself."


def answer_config(home: Home, rest: str, who: str) -> str:
    """Show a setting, or change one if `commands.config` allows it; `who` is recorded in the audit log."""
    verb, _, words = rest.partition(" ")
    try:
        match verb.lower():
            case "":
                return USAGE
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
        return SWITCHED_OFF
    key, _, value = words.partition(" ")
    if verb == "unset":
        edited = unset_value(home.paths, key, home.environment, who=who)
    elif value.strip():
        edited = set_value(home.paths, key, value.strip(), home.environment, who=who)
    else:
        return USAGE
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
