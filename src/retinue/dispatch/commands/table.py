"""All commands, and running one."""

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
"""Names that a skill cannot take."""

CONTROLS = frozenset({"approve", "allowlist", "stop", "status", "queue", "help", "commands"})
"""Commands that wait for nothing: they act while a turn runs, which may be waiting for them."""


def is_control(text: str) -> bool:
    """Whether a message is a command that acts at once, whatever runs."""
    typed = parse_command(text)
    return typed is not None and typed.name in CONTROLS


async def run_command(text: str, desk: CommandTarget) -> Answer | None:
    """Run the command in a message; None where it is none of ours, so that the model gets the message as it is."""
    typed = parse_command(text)
    if typed is None:
        return None
    command = _BY_NAME.get(typed.name)
    if command is None:
        return await desk.use_skill(typed.name, typed.rest) if typed.name in desk.skill_commands() else None
    if command.owner_only and not desk.owner:
        return Answer(f"/{command.name} is only for the owner of this assistant.")
    return await command.run(desk, typed.rest)
