"""Commands about commands, skills and the configuration."""

from __future__ import annotations

from retinue.dispatch.commands.command import Answer, CommandTarget, SlashCommand


async def _help(desk: CommandTarget, rest: str) -> Answer:
    width = max(len(command.usage or f"/{command.name}") for command in desk.commands())
    lines = [f"{(command.usage or f'/{command.name}'):<{width}}  {command.summary}" for command in desk.commands()]
    skills = [f"/{name}  {about}" for name, about in desk.skill_commands().items()]
    if skills:
        lines += ["", "Skills:", *skills]
    return Answer("\n".join(lines))


async def _skill(desk: CommandTarget, rest: str) -> Answer:
    name, _, words = rest.partition(" ")
    if not name:
        known = ", ".join(desk.skill_commands()) or "none"
        return Answer(f"Usage: /skill <name> [what to do]. Skills: {known}")
    return await desk.use_skill(name, words.strip())


async def _config(desk: CommandTarget, rest: str) -> Answer:
    return Answer(desk.config(rest))


async def _plugins(desk: CommandTarget, rest: str) -> Answer:
    return Answer(desk.plugins(rest))


async def _restart(desk: CommandTarget, rest: str) -> Answer:
    return Answer(desk.restart_gateway())


COMMANDS = (
    SlashCommand("help", "List the commands.", _help),
    SlashCommand("commands", "List the commands.", _help),
    SlashCommand("skill", "Use a skill.", _skill, "/skill <name> [what to do]"),
    SlashCommand(
        "config", "Show or change a setting.", _config, "/config [set | unset] <key> [value]", owner_only=True
    ),
    SlashCommand(
        "plugins", "List, enable or disable plugins.", _plugins, "/plugins [enable | disable] [name]", owner_only=True
    ),
    SlashCommand("restart", "Restart the gateway.", _restart, owner_only=True),
)
