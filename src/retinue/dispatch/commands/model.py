"""Commands about the model and what is shown of its work."""

from __future__ import annotations

from retinue.core.errors import UsageError
from retinue.core.model import ReasoningEffort
from retinue.dispatch.commands.command import Answer, CommandTarget, SlashCommand, pick


async def _model(target: CommandTarget, rest: str) -> Answer:
    if not rest:
        status = await target.status()
        return Answer(f"{status.model} ({status.because}). /model <name> changes it, /models lists.")
    try:
        chosen = await target.choose_model(None if rest == "default" else rest)
    except UsageError as error:
        return Answer(str(error))
    return Answer(f"This conversation now uses {chosen}.", {"model": chosen})


async def _models(target: CommandTarget, rest: str) -> Answer:
    names = target.models()
    return Answer("\n".join(names) or "No model is configured. See `retinue models list`.", list(names))


async def _think(target: CommandTarget, rest: str) -> Answer:
    levels = [*ReasoningEffort, "default"]
    if not rest:
        status = await target.status()
        return Answer(f"Thinking is {status.thinking}. Usage: /think {'|'.join(levels)}")
    chosen = pick(rest, levels, f"/think {'|'.join(levels)}")
    if isinstance(chosen, Answer):
        return chosen
    return Answer(f"Thinking is {target.choose_thinking(None if chosen == 'default' else chosen)}.")


async def _reasoning(target: CommandTarget, rest: str) -> Answer:
    return _choose(target, "reasoning", rest, ("off", "on", "stream"), "Reasoning")


async def _verbose(target: CommandTarget, rest: str) -> Answer:
    return _choose(target, "verbose", rest, ("off", "on", "full"), "Verbose output")


def _choose(target: CommandTarget, setting: str, rest: str, allowed: tuple[str, ...], noun: str) -> Answer:
    chosen = pick(rest or "on", allowed, f"/{setting} {'|'.join(allowed)}")
    if isinstance(chosen, Answer):
        return chosen
    target.choose(setting, chosen)
    return Answer(f"{noun} is {chosen}.")


COMMANDS = (
    SlashCommand("model", "Show or change this conversation's model.", _model, "/model [name | default]"),
    SlashCommand("models", "List the models you can choose.", _models),
    SlashCommand("think", "Show or change the reasoning effort.", _think, "/think [level | default]"),
    SlashCommand("reasoning", "Show or hide reasoning.", _reasoning, "/reasoning on|off|stream"),
    SlashCommand("verbose", "Show or change how much of tool results is shown.", _verbose, "/verbose on|off|full"),
)
