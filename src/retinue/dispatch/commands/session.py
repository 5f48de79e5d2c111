"""Commands about the conversation itself."""

from __future__ import annotations

import json

from msgspec.structs import asdict

from retinue.core.messages import Usage
from retinue.dispatch.commands.command import Answer, CommandTarget, Fresh, SlashCommand, StatusReport

SUBAGENTS_USAGE = "/subagents [list | log <run> | cancel <run> | steer <run> <message>]"


async def _restart(target: CommandTarget, rest: str, how: Fresh) -> Answer:
    fresh = await target.restart(how)
    model = ""
    if rest and " " not in rest and rest in target.models():
        model = f" with {await target.choose_model(rest)}"
        rest = ""
    return Answer(f"New conversation{model}. The old one is archived.", {"sessionId": fresh}, ask=rest or None)


async def _new(target: CommandTarget, rest: str) -> Answer:
    return await _restart(target, rest, "new")


async def _reset(target: CommandTarget, rest: str) -> Answer:
    return await _restart(target, rest, "reset")


async def _compact(target: CommandTarget, rest: str) -> Answer:
    return Answer(await target.compact(rest))


async def _stop(target: CommandTarget, rest: str) -> Answer:
    return Answer("Stopped." if target.stop() else "Nothing is running.")


async def _status(target: CommandTarget, rest: str) -> Answer:
    status = await target.status()
    return Answer(format_status(status), asdict(status) | {"usage": asdict(status.usage)})


async def _queue(target: CommandTarget, rest: str) -> Answer:
    return Answer(target.queue(rest))


async def _export(target: CommandTarget, rest: str) -> Answer:
    form = rest.lower() or "md"
    if form not in ("md", "json"):
        return Answer("Usage: /export [md|json]")
    path = target.export(form)
    return Answer(f"Written to {path}", {"path": str(path)})


async def _subagents(target: CommandTarget, rest: str) -> Answer:
    action, run, message = (*rest.split(maxsplit=2), "", "", "")[:3]
    match (action.lower() or "list"), bool(run), bool(message):
        case ("list", False, _) | ("log" | "cancel", True, False) | ("steer", True, True):
            return Answer(format_children(await target.subagents(action.lower() or "list", run, message)))
    return Answer(f"Usage: {SUBAGENTS_USAGE}")


def format_children(output: str) -> str:
    """Format the output of the tool `subagents` for people; text that is not JSON is returned unchanged."""
    try:
        data = json.loads(output)
    except ValueError:
        return output
    match data:
        case []:
            return "This conversation has no sub-agents."
        case [*rows]:
            return "\n".join(f"{row['runId'][:8]}  {row['state']}  {row['label'] or row['task'][:60]}" for row in rows)
        case {"cancelled": done}:
            return "Cancelled." if done else "It had already ended."
        case {"steered": run}:
            return f"{run[:8]} received the message."
        case {"state": state, "text": text}:
            return f"{state}\n\n{text or '(no result yet)'}"
    return output


async def _whoami(target: CommandTarget, rest: str) -> Answer:
    role = "the owner" if target.owner else "a guest"
    return Answer(f"You are {target.sender}, {role}, in session {target.session}.")


def format_status(status: StatusReport) -> str:
    """Format the status for people."""
    share = f", {status.context_tokens / status.window:.0%} of {status.window:,}" if status.window else ""
    lines = [
        f"{status.name} — {status.model} ({status.because})",
        f"Session {status.session} ({status.session_id}), {status.messages} messages"
        + (f", {status.compactions} compactions" if status.compactions else ""),
        f"Context {status.context_tokens:,} tokens{share}; thinking {status.thinking}",
        f"Used {format_usage(status.usage)}",
        f"Workspace {status.workspace}",
        f"Time {status.time}",
    ]
    if status.sandboxed or status.elevated != "off":
        lines.append(f"Commands: {'sandboxed' if status.sandboxed else 'not sandboxed'}; elevated {status.elevated}")
    if status.truncated:
        lines.append(f"Shortened in the prompt: {', '.join(status.truncated)}")
    return "\n".join(lines)


def format_usage(usage: Usage) -> str:
    """Format tokens and cost on one line."""
    hit = f", {usage.cache_read / usage.prompt:.0%} from cache" if usage.cache_read and usage.prompt else ""
    cost = f", ${usage.cost:.4f}" if usage.cost else ""
    return f"{usage.prompt:,} tokens in{hit}, {usage.output:,} out{cost}"


COMMANDS = (
    SlashCommand("new", "Start a new conversation; the old one is archived.", _new, "/new [model | message]"),
    SlashCommand("reset", "The same as /new.", _reset, "/reset [model | message]"),
    SlashCommand("compact", "Summarise the older part of the conversation.", _compact, "/compact [what to keep]"),
    SlashCommand("stop", "Stop the running turn.", _stop),
    SlashCommand(
        "queue",
        "Show or change how messages that arrive during a turn are queued.",
        _queue,
        "/queue [mode] [debounce:2s] [cap:25] [drop:…] | reset",
    ),
    SlashCommand("status", "Show model, context, cost and workspace.", _status),
    SlashCommand("export", "Write the conversation to a file.", _export, "/export [md|json]"),
    SlashCommand(
        "subagents", "List, cancel or steer the sub-agents of this conversation.", _subagents, SUBAGENTS_USAGE
    ),
    SlashCommand("whoami", "Show your sender id, role and session.", _whoami),
)
