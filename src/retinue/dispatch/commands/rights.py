"""Commands about what the agent may do here."""

from __future__ import annotations

from retinue.dispatch.commands.command import Answer, CommandTarget, SlashCommand, pick
from retinue.tools.elevated import Elevation

USAGE = f"/elevated {'|'.join(Elevation)}"
BASH_USAGE = "/bash <command>, or ! <command>"


async def _elevated(desk: CommandTarget, rest: str) -> Answer:
    if not rest:
        return Answer(f"{desk.elevate(None)} Usage: {USAGE}")
    chosen = pick(rest, list(Elevation), USAGE)
    return chosen if isinstance(chosen, Answer) else Answer(desk.elevate(Elevation(chosen)))


async def _bash(desk: CommandTarget, rest: str) -> Answer:
    return Answer(await desk.run_shell(rest) if rest else f"Usage: {BASH_USAGE}")


COMMANDS = (
    SlashCommand("elevated", "Whether commands may leave the sandbox.", _elevated, USAGE),
    SlashCommand("bash", "Run a shell command yourself.", _bash, BASH_USAGE, owner_only=True),
)
