"""Commands about commands, skills and the configuration."""

from __future__ import annotations

from retinue.dispatch.commands.command import Answer, CommandTarget, SlashCommand


async def _help(target: CommandTarget, rest: str) -> Answer:
    width = max(len(command.usage or f"/{command.name}") for command in target.commands())
    lines = [f"{(command.usage or f'/{command.name}'):<{width}}  {command.summary}" for command in target.commands()]
    skills = [f"/{name}  {about}" for name, about in target.skill_commands().items()]
    if skills:
        lines += ["", "Skills:", *skills]
    return Answer("\n".join(lines))


async def _skill(target: CommandTarget, rest: str) -> Answer:
    name, _, words = rest.partition(" ")
    if not name:
        known = ", ".join(target.skill_commands()) or "none"
        return Answer(f"Usage: /skill <name> [what to do]. Skills: {known}")
    return await target.use_skill(name, words.strip())


async def _config(target: CommandTarget, rest: str) -> Answer:
    return Answer(target.config(rest))


async def _plugins(target: CommandTarget, rest: str) -> Answer:
    return Answer(target.plugins(rest))


async def _restart(target: CommandTarget, rest: str) -> Answer:
    return Answer(target.restart_gateway())


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
