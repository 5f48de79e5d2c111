"""Commands about a conversation: its history, model, display, prompt and cost."""

from __future__ import annotations

import json
from functools import partial
from typing import Literal

from msgspec.structs import asdict

from retinue.context.prompt.report import PromptReport
from retinue.core.codec import to_plain
from retinue.core.errors import UsageError
from retinue.core.messages import Usage
from retinue.core.model import ReasoningEffort
from retinue.dispatch.commands.command import Answer, CommandTarget, Fresh, SlashCommand, StatusReport, pick

CONTEXT_USAGE = "/context [list | detail | json]"
SUBAGENTS_USAGE = "/subagents [list | log <run> | cancel <run> | steer <run> <message>]"


async def _restart(target: CommandTarget, rest: str, *, how: Fresh) -> Answer:
    fresh = await target.restart(how)
    model = ""
    if rest and " " not in rest and rest in target.models():
        model = f" with {await target.choose_model(rest)}"
        rest = ""
    return Answer(f"New conversation{model}. The old one is archived.", {"sessionId": fresh}, ask=rest or None)


async def _compact(target: CommandTarget, rest: str) -> Answer:
    return Answer(await target.compact(rest))


async def _status(target: CommandTarget, rest: str) -> Answer:
    status = await target.status()
    return Answer(format_status(status), asdict(status) | {"usage": asdict(status.usage)})


def _export(target: CommandTarget, rest: str) -> Answer:
    form = rest.lower() or "md"
    if form not in ("md", "json"):
        return Answer("Usage: /export [md|json]")
    path = target.export(form)
    return Answer(f"Written to {path}", {"path": str(path)})


async def _restore_files(target: CommandTarget, rest: str, *, direction: Literal["undo", "redo"]) -> Answer:
    try:
        return Answer(await target.restore_files(direction))
    except UsageError as error:
        return Answer(str(error))


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


def _whoami(target: CommandTarget, rest: str) -> Answer:
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
    if status.suspicious:
        found = ", ".join(f"{source} {count}" for source, count in sorted(status.suspicious.items()))
        lines.append(f"Text that looks like prompt injection: {found}")
    return "\n".join(lines)


def format_usage(usage: Usage) -> str:
    """Format tokens and cost on one line."""
    hit = f", {usage.cache_read / usage.prompt:.0%} from cache" if usage.cache_read and usage.prompt else ""
    cost = f", ${usage.cost:.4f}" if usage.cost else ""
    return f"{usage.prompt:,} tokens in{hit}, {usage.output:,} out{cost}"


async def _model(target: CommandTarget, rest: str) -> Answer:
    if not rest:
        status = await target.status()
        return Answer(f"{status.model} ({status.because}). /model <name> changes it, /models lists.")
    try:
        chosen = await target.choose_model(None if rest == "default" else rest)
    except UsageError as error:
        return Answer(str(error))
    return Answer(f"This conversation now uses {chosen}.", {"model": chosen})


def _models(target: CommandTarget, rest: str) -> Answer:
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


def _choose(target: CommandTarget, rest: str, *, setting: str, noun: str, allowed: tuple[str, ...]) -> Answer:
    chosen = pick(rest or "on", allowed, f"/{setting} {'|'.join(allowed)}")
    if isinstance(chosen, Answer):
        return chosen
    target.choose(setting, chosen)
    return Answer(f"{noun} is {chosen}.")


async def _context(target: CommandTarget, rest: str) -> Answer:
    report = await target.report()
    data = to_plain(report)
    match rest.lower() or "list":
        case "list":
            return Answer(_format_list(report), data)
        case "detail":
            return Answer(_format_detail(report), data)
        case "json":
            return Answer(json.dumps(data, ensure_ascii=False, indent=2), data)
        case _:
            return Answer(f"Usage: {CONTEXT_USAGE}")


def _format_list(report: PromptReport) -> str:
    schemas = sum(tool.tokens for tool in report.tools)
    lines = [
        f"System prompt: {report.total.tokens:,} tokens ({report.total.chars:,} characters)",
        f"Tool schemas: {schemas:,} tokens, {len(report.tools)} tools",
        f"Skills listed: {len(report.skills)}, {sum(skill.tokens for skill in report.skills):,} tokens",
        "Files:",
    ]
    for file in report.files:
        cut = f", shortened from {file.raw:,}" if file.truncated else ""
        lines.append(f"- {file.name}: {file.injected:,} characters{cut}")
    return "\n".join([*lines, "`/context detail` shows every section."])


def _format_detail(report: PromptReport) -> str:
    sections = [f"- {s.name} ({s.part}): {s.tokens:,} tokens, {s.hash[:8]}, {s.source}" for s in report.sections]
    skills = [f"- {skill.name}: {skill.tokens:,} tokens" for skill in report.skills]
    tools = [f"- {tool.name}: {tool.tokens:,} tokens" for tool in report.tools]
    return "\n".join([_format_list(report), "", "Sections:", *sections, "Skills:", *skills, "Tools:", *tools])


def _usage(target: CommandTarget, rest: str) -> Answer:
    rows = target.usage()
    return Answer(
        "\n".join(f"{row.what}: {format_usage(row.usage)}" for row in rows),
        [{"what": row.what} | to_plain(row.usage) for row in rows],
    )


COMMANDS = (
    SlashCommand(
        "new",
        "Start a new conversation; the old one is archived.",
        partial(_restart, how="new"),
        "/new [model | message]",
    ),
    SlashCommand("reset", "The same as /new.", partial(_restart, how="reset"), "/reset [model | message]"),
    SlashCommand("compact", "Summarise the older part of the conversation.", _compact, "/compact [what to keep]"),
    SlashCommand(
        "stop",
        "Stop the running turn.",
        lambda target, rest: Answer("Stopped." if target.stop() else "Nothing is running."),
    ),
    SlashCommand(
        "queue",
        "Show or change how messages that arrive during a turn are queued.",
        lambda target, rest: Answer(target.queue(rest)),
        "/queue [mode] [debounce:2s] [cap:25] [drop:…] | reset",
    ),
    SlashCommand("status", "Show model, context, cost and workspace.", _status),
    SlashCommand(
        "undo",
        "Undo what the last turn of this conversation changed in the workspace.",
        partial(_restore_files, direction="undo"),
        owner_only=True,
    ),
    SlashCommand("redo", "Repeat what /undo undid.", partial(_restore_files, direction="redo"), owner_only=True),
    SlashCommand("export", "Write the conversation to a file.", _export, "/export [md|json]"),
    SlashCommand(
        "subagents", "List, cancel or steer the sub-agents of this conversation.", _subagents, SUBAGENTS_USAGE
    ),
    SlashCommand("whoami", "Show your sender id, role and session.", _whoami),
    SlashCommand("model", "Show or change this conversation's model.", _model, "/model [name | default]"),
    SlashCommand("models", "List the models you can choose.", _models),
    SlashCommand("think", "Show or change the reasoning effort.", _think, "/think [level | default]"),
    SlashCommand(
        "reasoning",
        "Show or hide reasoning.",
        partial(_choose, setting="reasoning", noun="Reasoning", allowed=("off", "on", "stream")),
        "/reasoning on|off|stream",
    ),
    SlashCommand(
        "verbose",
        "Show or change how much of tool results is shown.",
        partial(_choose, setting="verbose", noun="Verbose output", allowed=("off", "on", "full")),
        "/verbose on|off|full",
    ),
    SlashCommand("context", "Show the parts of the prompt with their sizes.", _context, CONTEXT_USAGE),
    SlashCommand("usage", "Show the cost of this conversation, this day and each model.", _usage),
)
