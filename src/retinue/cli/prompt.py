"""`retinue prompt`: the system prompt of an agent, its size and its changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table
from retinue.core.codec import from_plain, load_json, to_plain

if TYPE_CHECKING:
    from retinue.context.prompt.report import PromptReport, ReportDiff
    from retinue.core.model import ToolSpec
    from retinue.runtime.agents.prompting import AgentPrompt

MODES = click.Choice(["full", "minimal", "none"])
PARTS = click.Choice(["stable", "session", "turn", "all"])


@click.group(cls=Group)
def prompt() -> None:
    pass


def _which(command: Any) -> Any:
    """Add the options that select a prompt."""
    for option in (
        click.option("--session", metavar="KEY", help="Session (default: the agent's main session)."),
        click.option(
            "--mode", type=MODES, default="full", help="Prompt mode: full (main agent), minimal (sub-agent) or none."
        ),
        click.option("--agent", metavar="ID", help="Agent (default: the default agent)."),
    ):
        command = option(command)
    return command


@prompt.command()
@_which
@click.option("--part", type=PARTS, default="all", help="Part of the prompt.")
@pass_invocation
def show(invocation: Invocation, agent: str | None, mode: str, session: str | None, part: str) -> None:
    """Print the prompt exactly as the model receives it."""
    built, _ = _build(invocation, agent, session, mode)
    texts = {"stable": built.system.stable, "session": built.system.session, "turn": built.turn.text}
    chosen = texts if part == "all" else {part: texts[part]}
    text = "\n\n".join(filter(None, chosen.values()))
    records = [r for r in (*built.system.records, *built.turn.records) if part in ("all", r.part)]
    invocation.show(
        {
            "text": text,
            "sections": [
                {"name": r.name, "part": r.part, "source": r.source, "hash": r.hash, "text": r.text} for r in records
            ],
        },
        text,
        exact=True,
    )


@prompt.command()
@_which
@pass_invocation
def sizes(invocation: Invocation, agent: str | None, mode: str, session: str | None) -> None:
    """Show the size of each section, file, skill and tool."""
    built, tools = _build(invocation, agent, session, mode)
    report = _measure(built, tools)
    invocation.show(to_plain(report), lambda: _format_sizes(report))


@prompt.command()
@click.argument("before", required=False)
@click.argument("after", default=".")
@pass_invocation
def diff(invocation: Invocation, before: str | None, after: str) -> None:
    """Compare two prompts and name the first section that invalidates the provider's cache.

    Without BEFORE, the last two prompts of the main session are compared; without AFTER, the second is built now.

    BEFORE and AFTER are each one of: a session, whose prompt is built now; SESSION#N, the N-th prompt that the session
    was sent (#-1 is the last one; a new one is kept whenever something changed); a file written by `retinue prompt
    sizes --json`.
    """
    from retinue.context.prompt.report import diff_reports

    if before is None:
        first, second = _last_two(invocation)
    else:
        first, second = _operand(invocation, before), _operand(invocation, after)
    found = diff_reports(first, second)
    invocation.show(
        {
            "added": found.added,
            "removed": found.removed,
            "changed": found.changed,
            "moved": {"name": found.moved.name, "because": found.moved.because} if found.moved else None,
        },
        lambda: _format_diff(found),
    )


TURNS = click.Choice(["message", "heartbeat", "cron", "cron-light"])


@prompt.command()
@click.option("--harness", type=click.Choice(["codex"]), default="codex", help="The program that would run the turn.")
@click.option("--session", metavar="KEY", help="Session (default: the agent's main session).")
@click.option("--agent", metavar="ID", help="Agent (default: the default agent).")
@click.option("--turn", "kind", type=TURNS, default="message", help="Why the turn runs.")
@click.option("--message", default="", metavar="TEXT", help="Text of the turn.")
@pass_invocation
def layers(
    invocation: Invocation, harness: str, session: str | None, agent: str | None, kind: str, message: str
) -> None:
    """Print the request with which another program would run a turn, layer by layer. Nothing is sent."""
    import anyio

    from retinue.context.prompt.codex import TurnKind
    from retinue.runtime.open import preview_codex

    home = invocation.load_home()
    key = home.session_key(session, agent)
    request = anyio.run(preview_codex, home, key, TurnKind(kind), message)
    invocation.show(
        {"session": str(key), **request.to_json()},
        lambda: "\n\n".join(
            f"=== {layer.name} ({layer.role}, {layer.owner})\n{layer.text}" for layer in request.layers
        ),
        exact=True,
    )


@prompt.command("sync-codex-model")
@click.option("--catalog", type=click.Path(path_type=Path), help="Catalogue of models (default: Codex's cache).")
@click.option("--model", metavar="NAME", help="Model of Codex (default: the pinned one).")
@pass_invocation
def sync_codex_model(invocation: Invocation, catalog: Path | None, model: str | None) -> None:
    """Pin the instructions of a model of Codex by hash and length.

    They are read from --catalog, else from models_cache.json in $CODEX_HOME or ~/.codex. Without a catalogue nothing is
    changed. The text is not stored.
    """
    import msgspec

    from retinue.context.prompt.codex import find_catalog, load_pin, read_model_prompt
    from retinue.runtime.turns.plan import CODEX_PIN
    from retinue.storage.files import write_atomic

    home = invocation.load_home()
    path = home.paths.path / CODEX_PIN
    before = load_pin(path)
    source = find_catalog(catalog, home.environment, Path(home.environment.get("HOME") or Path.home()))
    found = read_model_prompt(source, model or before.model) if source else before
    if found != before:
        write_atomic(path, msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    if source is None:
        text = "No catalogue of Codex's models was found; nothing was changed. Name one with --catalog."
    else:
        unchanged = " (unchanged)" if found == before else ""
        text = f"{found.model}: {found.chars} characters, sha256 {found.sha256}{unchanged}"
    data = {"catalog": str(source) if source else None, "changed": found != before, **to_plain(found)}
    invocation.show(data, text)


def _build(
    invocation: Invocation, agent: str | None, session: str | None, mode: str
) -> tuple[AgentPrompt, tuple[ToolSpec, ...]]:
    import anyio

    from retinue.context.prompt.inputs import PromptMode
    from retinue.runtime.open import preview_prompt

    home = invocation.load_home()
    key = home.session_key(session, agent)
    return anyio.run(preview_prompt, home, key, PromptMode(mode))


def _measure(built: AgentPrompt, tools: tuple[ToolSpec, ...]) -> PromptReport:
    from retinue.context.prompt.report import report_prompt

    return report_prompt(built.system, turn=built.turn, tools=tools)


def _last_two(invocation: Invocation) -> tuple[PromptReport, PromptReport]:
    """Return the last two different prompts of the main session, or the same one twice."""
    from retinue.core.errors import UsageError
    from retinue.runtime.agents.workspace import sent_prompts

    home = invocation.load_home()
    reports = sent_prompts(home, home.session_key(None, None))
    if not reports:
        raise UsageError(
            "The main session has no recorded prompt yet. Send a message first, or name two prompts to compare."
        )
    return reports[-2:][0], reports[-1]


def _operand(invocation: Invocation, text: str) -> PromptReport:
    from retinue.context.prompt.report import PromptReport
    from retinue.core.errors import UsageError

    path = Path(text)
    if not path.is_file() and "#" in text:
        return _sent(invocation, text)
    if not path.is_file():
        built, tools = _build(invocation, None, None if text == "." else text, "full")
        return _measure(built, tools)
    try:
        return from_plain(load_json(path.read_text("utf-8")), PromptReport)
    except ValueError as error:
        raise UsageError(
            f"{text} is not a report of prompt sizes ({error}). Make one with `retinue prompt sizes --json > FILE`."
        ) from error


def _sent(invocation: Invocation, text: str) -> PromptReport:
    """Return a recorded prompt of a session by number."""
    from retinue.core.errors import UsageError
    from retinue.runtime.agents.workspace import sent_prompts
    from retinue.runtime.home import load_home

    name, _, number = text.rpartition("#")
    home = load_home(invocation.home)
    reports = sent_prompts(home, home.session_key(name or None, None))
    try:
        at = int(number)
        return reports[at if at < 0 else at - 1]
    except (ValueError, IndexError):
        raise UsageError(
            f"'{text}' does not name a prompt: {len(reports)} are recorded for '{name}', SESSION#1 to #{len(reports)}."
        ) from None


def _format_sizes(report: PromptReport) -> str:
    schemas = sum(tool.tokens for tool in report.tools)
    blocks = [
        table(
            [(s.name, s.part, s.chars, s.tokens, s.hash[:8], s.source) for s in report.sections],
            header=("section", "part", "chars", "tokens", "hash", "source"),
        )
    ]
    cut = [file for file in report.files if file.truncated]
    if cut:
        rows = [(file.name, file.raw, file.injected) for file in cut]
        blocks.append("Shortened files\n" + table(rows, header=("file", "chars", "in prompt"), indent="  "))
    if report.skills:
        rows_of_skills = [(skill.name, skill.chars, skill.tokens) for skill in report.skills]
        blocks.append("Skills\n" + table(rows_of_skills, header=("skill", "chars", "tokens"), indent="  "))
    if report.tools:
        rows_of_tools = [(tool.name, tool.chars, tool.tokens) for tool in report.tools]
        blocks.append("Tool schemas\n" + table(rows_of_tools, header=("tool", "chars", "tokens"), indent="  "))
    blocks.append(
        f"Total: {report.total.tokens:,} tokens of prompt ({report.total.chars:,} characters)"
        + (f" and {schemas:,} tokens of tool schemas." if report.tools else ".")
    )
    return "\n\n".join(blocks)


def _format_diff(found: ReportDiff) -> str:
    lines = [
        f"{word}: {', '.join(names)}"
        for word, names in (("Added", found.added), ("Removed", found.removed), ("Changed", found.changed))
        if names
    ]
    if found.moved:
        lines.append(f"The cached prefix moves at `{found.moved.name}`: {found.moved.because}.")
    else:
        lines.append("The cached prefix is the same.")
    return "\n".join(lines)
