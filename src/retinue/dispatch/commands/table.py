"""The table of all slash commands, and the function that runs one."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.dispatch.commands import permissions, session
from retinue.dispatch.commands.command import Answer, CommandTarget, SlashCommand, parse_command

HELP_COLUMN = 22
"""Where the descriptions of `/help` start; narrow terminals have room for them."""


def _help(target: CommandTarget, rest: str) -> Answer:
    lines, skills = _list_commands(target), target.skill_commands()
    if skills:
        lines += ["", f"Skills, which /commands describes: {' '.join(f'/{name}' for name in skills)}"]
    return Answer("\n".join(lines))


def _commands(target: CommandTarget, rest: str) -> Answer:
    lines, skills = _list_commands(target), target.skill_commands()
    if skills:
        lines += ["", "Skills:", *_align((f"/{name}", about) for name, about in skills.items())]
    return Answer("\n".join(lines))


def _list_commands(target: CommandTarget) -> list[str]:
    return _align((command.usage or f"/{command.name}", command.summary) for command in target.commands())


def _align(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return rows whose second column starts at one place; after a long first column, on the next line."""
    lines: list[str] = []
    for name, about in rows:
        fits = len(name) < HELP_COLUMN
        lines += [f"{name:<{HELP_COLUMN}}{about}"] if fits else [name, f"{'':<{HELP_COLUMN}}{about}"]
    return lines


async def _skill(target: CommandTarget, rest: str) -> Answer:
    name, _, words = rest.partition(" ")
    if not name:
        known = ", ".join(target.skill_commands()) or "none"
        return Answer(f"Usage: /skill <name> [what to do]. Skills: {known}")
    return await target.use_skill(name, words.strip())


COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand("help", "List the commands.", _help),
    SlashCommand("commands", "List the commands and describe the skills.", _commands),
    SlashCommand("skill", "Use a skill.", _skill, "/skill <name> [what to do]"),
    SlashCommand(
        "config",
        "Show or change a setting.",
        lambda target, rest: Answer(target.config(rest)),
        "/config [set | unset] <key> [value]",
        owner_only=True,
    ),
    SlashCommand(
        "plugins",
        "List, enable or disable plugins.",
        lambda target, rest: Answer(target.plugins(rest)),
        "/plugins [enable | disable] [name]",
        owner_only=True,
    ),
    SlashCommand(
        "skills",
        "Review new and changed skills.",
        lambda target, rest: Answer(target.skills(rest)),
        "/skills [diff | accept] [name]",
        owner_only=True,
    ),
    SlashCommand(
        "restart", "Restart the gateway.", lambda target, rest: Answer(target.restart_gateway()), owner_only=True
    ),
    *session.COMMANDS,
    *permissions.COMMANDS,
)

_BY_NAME = {command.name: command for command in COMMANDS}
RESERVED = frozenset(_BY_NAME)
"""Names that a skill command cannot have."""

CONTROLS = frozenset({"approve", "allowlist", "stop", "status", "queue", "help", "commands"})
"""Commands that run during a turn without waiting for it; the turn may be waiting for them."""


OPEN_TO_OTHERS = frozenset({"help", "commands", "new", "reset", "stop", "compact", "think", "reasoning", "whoami"})
"""Commands for people other than the owner: they control a conversation, and show nothing of the owner's."""


def is_control(text: str) -> bool:
    """Return whether a message is a command that runs at once, also during a turn."""
    typed = parse_command(text)
    return typed is not None and typed.name in CONTROLS


async def run_command(text: str, target: CommandTarget) -> Answer | None:
    """Run the command in a message; return None if it is unknown, so that the model gets the message unchanged."""
    typed = parse_command(text)
    if typed is None:
        return None
    command = _BY_NAME.get(typed.name)
    if target.is_for_other and typed.name not in OPEN_TO_OTHERS:
        return Answer(f"/{typed.name} is only for the owner of this assistant.")
    if command is None:
        command = next((each for each in target.commands() if each.name == typed.name), None)
    if command is None:
        return await target.use_skill(typed.name, typed.rest) if typed.name in target.skill_commands() else None
    if command.owner_only and not target.owner:
        return Answer(f"/{command.name} is only for the owner of this assistant.")
    answer = command.run(target, typed.rest)
    return answer if isinstance(answer, Answer) else await answer
