"""Commands about the prompt, its size and the cost."""

from __future__ import annotations

import json

from retinue.context.prompt.report import PromptReport
from retinue.dispatch.commands.command import Answer, CommandTarget, SlashCommand
from retinue.dispatch.commands.session import format_usage

USAGE = "/context [list | detail | json]"


async def _context(target: CommandTarget, rest: str) -> Answer:
    report = await target.report()
    match rest.lower() or "list":
        case "list":
            return Answer(_format_list(report), report.to_json())
        case "detail":
            return Answer(_format_detail(report), report.to_json())
        case "json":
            return Answer(json.dumps(report.to_json(), ensure_ascii=False, indent=2), report.to_json())
        case _:
            return Answer(f"Usage: {USAGE}")


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


async def _usage(target: CommandTarget, rest: str) -> Answer:
    rows = target.usage()
    return Answer(
        "\n".join(f"{row.what}: {format_usage(row.usage)}" for row in rows),
        [
            {
                "what": row.what,
                "input": row.usage.input,
                "output": row.usage.output,
                "cacheRead": row.usage.cache_read,
                "cacheWrite": row.usage.cache_write,
                "cost": row.usage.cost,
            }
            for row in rows
        ],
    )


COMMANDS = (
    SlashCommand("context", "Show the parts of the prompt with their sizes.", _context, USAGE),
    SlashCommand("usage", "Show the cost of this conversation, this day and each model.", _usage),
)
