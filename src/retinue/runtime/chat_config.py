"""The configuration as the owner sees and changes it from a chat."""

from __future__ import annotations

from retinue.config.edit import set_value, unset_value
from retinue.config.explain import explain
from retinue.core.errors import RetinueError
from retinue.runtime.approvals import IN_COMMAND
from retinue.runtime.foundation import Foundation

USAGE = "Usage: /config <key>, as in /config agents.defaults.model; /config set <key> <value>; /config unset <key>."
SWITCHED_OFF = "Settings cannot be changed from a chat here. `retinue config set commands.config true` allows it."
NOT_FROM_COMMANDS = "A command that an agent runs cannot do this. Do it yourself."


def is_in_command(foundation: Foundation) -> bool:
    """Whether an agent started this process by a command; then whoever speaks is not the owner."""
    return IN_COMMAND in foundation.environment


def answer_config(foundation: Foundation, rest: str, who: str) -> str:
    """Show a setting, or change one where `commands.config` allows it; `who` stands in the audit log."""
    verb, _, words = rest.partition(" ")
    try:
        match verb.lower():
            case "":
                return USAGE
            case "set" | "unset" if words.strip():
                return _change(foundation, verb.lower(), words.strip(), who)
        found = explain(foundation.loaded, rest)
    except RetinueError as error:
        return str(error)
    return f"{found.key} = {found.value!r} ({found.origin})\n{found.documentation}"


def _change(foundation: Foundation, verb: str, words: str, who: str) -> str:
    if is_in_command(foundation):
        return NOT_FROM_COMMANDS
    if not foundation.config.commands.config:
        return SWITCHED_OFF
    key, _, value = words.partition(" ")
    if verb == "unset":
        edited = unset_value(foundation.home, key, foundation.environment, who=who)
    elif value.strip():
        edited = set_value(foundation.home, key, value.strip(), foundation.environment, who=who)
    else:
        return USAGE
    warnings = "".join(f"\n{problem}" for problem in edited.problems)
    if not edited.changed:
        return f"{edited.path} was so already."
    return f"Changed {edited.path}. `retinue config explain {edited.path}` tells when it takes effect.{warnings}"
