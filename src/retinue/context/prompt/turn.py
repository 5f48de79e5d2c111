"""The turn sections of the prompt, which are valid for one message only."""

from __future__ import annotations

from retinue.context.prompt.inputs import BackgroundCommand, ContextFile, TurnInputs
from retinue.security.escaping import label, literal

_COMMAND_CHARS = 200


def preamble(inputs: TurnInputs) -> str | None:
    if inputs == TurnInputs():
        return None
    return "[Context from Retinue for this message, not written by the sender, whose words come last.]"


def heartbeat(inputs: TurnInputs) -> str | None:
    match inputs.heartbeat_file:
        case None:
            return None
        case ContextFile(name="BOOT.md"):
            return "# Start\nYour standing list for starts of the gateway, read just now."
        case _:
            return "# Heartbeat\nYour standing list for wake-ups, read just now."


def heartbeat_files(inputs: TurnInputs) -> tuple[ContextFile, ...]:
    return (inputs.heartbeat_file,) if inputs.heartbeat_file else ()


def memories(inputs: TurnInputs) -> str | None:
    if not inputs.recollections:
        return None
    found = [f"Source: {label(hit.source)}\n{hit.text.strip()}" for hit in inputs.recollections]
    return "\n\n".join(
        ["## Memory Search Results\nRecalled for this message; it may be old or beside the point.", *found]
    )


def background_commands(inputs: TurnInputs) -> str | None:
    if not inputs.background:
        return None
    return "\n".join(["## Active Background Commands", *map(_describe, inputs.background)])


def _describe(command: BackgroundCommand) -> str:
    where = f" in {literal(command.cwd)}" if command.cwd else ""
    return f"- {literal(command.id)} {literal(command.status)}{where}: {literal(command.command, _COMMAND_CHARS)}"


def notices(inputs: TurnInputs) -> str | None:
    if not inputs.notices:
        return None
    return "\n".join(["## Notices", *(f"- {literal(notice)}" for notice in inputs.notices)])
