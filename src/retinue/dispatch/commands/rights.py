"""Commands about what the agent may do here."""

from __future__ import annotations

from retinue.dispatch.commands.command import Answer, Desk, SlashCommand, pick
from retinue.tools.elevated import Elevation

USAGE = f"/elevated {'|'.join(Elevation)}"


async def _elevated(desk: Desk, rest: str) -> Answer:
    if not rest:
        return Answer(f"{desk.elevate(None)} Usage: {USAGE}")
    chosen = pick(rest, list(Elevation), USAGE)
    return chosen if isinstance(chosen, Answer) else Answer(desk.elevate(Elevation(chosen)))


COMMANDS = (SlashCommand("elevated", "Whether commands may leave the sandbox.", _elevated, USAGE),)
