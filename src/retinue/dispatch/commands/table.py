"""The table of all commands, and the function that runs one."""

from __future__ import annotations

from retinue.dispatch.commands import approvals, context, help, model, rights, session  # noqa: A004
from retinue.dispatch.commands.command import Answer, CommandTarget, SlashCommand, parse_command

COMMANDS: tuple[SlashCommand, ...] = (
    *help.COMMANDS,
    *session.COMMANDS,
    *model.COMMANDS,
    *context.COMMANDS,
    *approvals.COMMANDS,
    *rights.COMMANDS,
)

_BY_NAME = {command.name: command for command in COMMANDS}
RESERVED = frozenset(_BY_NAME)
"""Names that a skill command cannot have."""

CONTROLS = frozenset({"approve", "allowlist", "stop", "status", "queue", "help", "commands"})
"""Commands that run during a turn without waiting for it; the turn may be waiting for them."""


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
    if command is None:
        return await target.use_skill(typed.name, typed.rest) if typed.name in target.skill_commands() else None
    if command.owner_only and not target.owner:
        return Answer(f"/{command.name} is only for the owner of this assistant.")
    return await command.run(target, typed.rest)
