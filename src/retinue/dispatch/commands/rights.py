"""Commands about elevated mode and the shell."""

from __future__ import annotations

from retinue.dispatch.commands.command import Answer, CommandTarget, SlashCommand, pick
from retinue.tools.elevated import Elevation

USAGE = f"/elevated {'|'.join(Elevation)}"
BASH_USAGE = "/bash <command>, or ! <command>"


async def _elevated(target: CommandTarget, rest: str) -> Answer:
    if not rest:
        return Answer(f"{target.elevate(None)} Usage: {USAGE}")
    chosen = pick(rest, list(Elevation), USAGE)
    return chosen if isinstance(chosen, Answer) else Answer(target.elevate(Elevation(chosen)))


async def _bash(target: CommandTarget, rest: str) -> Answer:
    return Answer(await target.run_shell(rest) if rest else f"Usage: {BASH_USAGE}")


COMMANDS = (
    SlashCommand("elevated", "Show or change whether commands run outside the sandbox.", _elevated, USAGE),
    SlashCommand("bash", "Run a shell command.", _bash, BASH_USAGE, owner_only=True),
)
