"""`retinue agent`: one turn from the command line."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, keep_logs, pass_invocation

if TYPE_CHECKING:
    from retinue.core.envelope import Outbound
    from retinue.core.events import TurnEvent


@click.command(cls=Command)
@click.option("--message", "-m", metavar="TEXT", help="What to say; without it, standard input is read.")
@click.option("--agent", "agent_id", metavar="ID", help="Which agent (default: the default agent).")
@click.option("--session", metavar="KEY", help="Which session (default: the agent's main one).")
@click.option("--model", metavar="REF", help="A model for this turn alone, as provider/model or alias.")
@click.option(
    "--skill",
    "skills",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Add a skill for this run.",
)
@click.option("--no-stream", is_flag=True, help="Print the answer when it is complete.")
@pass_invocation
def agent(
    invocation: Invocation,
    message: str | None,
    agent_id: str | None,
    session: str | None,
    model: str | None,
    skills: tuple[Path, ...],
    no_stream: bool,
) -> int:
    """Say one thing to an agent and print its answer.

    The exit code is 0 when it answered, 1 when it could not.
    """
    import anyio

    from retinue.core.errors import UsageError

    text = message if message is not None else ("" if sys.stdin.isatty() else sys.stdin.read())
    if not text.strip():
        raise UsageError("There is nothing to say. Use -m TEXT, or pipe the text in.")
    return anyio.run(ask_once, invocation, text, agent_id, session, model, skills, no_stream)


async def ask_once(
    invocation: Invocation,
    text: str,
    agent_id: str | None,
    session: str | None,
    model: str | None = None,
    skills: tuple[Path, ...] = (),
    no_stream: bool = False,
) -> int:
    """Run one turn and print it; the exit code tells whether it was answered."""
    from retinue.cli.approval import terminal_ask
    from retinue.core.envelope import Inbound
    from retinue.core.events import TurnStatus
    from retinue.runtime.foundation import lay_foundation
    from retinue.runtime.runtime import open_runtime

    keep_logs(invocation.home)
    foundation = lay_foundation(invocation.home)
    for problem in foundation.loaded.problems:
        invocation.note(str(problem))
    inbound = Inbound(text, foundation.session_key(session, agent_id), model=model)
    printer = _Printer(invocation, streaming=not (no_stream or invocation.as_json))
    async with open_runtime(foundation, extra_skills=skills) as runtime:
        outbound = await runtime.say(inbound, printer.emit, terminal_ask())
        printer.finish(outbound)
        runtime.confirm(outbound.run)
    return 0 if outbound.status is TurnStatus.OK else 1


class _Printer:
    """Prints an answer as it comes, or at its end; everything else goes to standard error."""

    def __init__(self, invocation: Invocation, *, streaming: bool) -> None:
        self._invocation = invocation
        self._streaming = streaming
        self._printed = ""
        self._accepted_at: str | None = None

    def _acknowledge(self, run: str) -> None:
        """Tell that the message is kept for good, on standard error, for people and for programs."""
        data = {"event": "accepted", "runId": run, "acceptedAt": self._accepted_at}
        self._invocation.note(json.dumps(data) if self._invocation.as_json else f"accepted {run} {self._accepted_at}")

    async def emit(self, event: TurnEvent) -> None:
        from retinue.core.events import Accepted, Answered, Notice, Spoken, ToolStarted

        match event:
            case Accepted(run, _, accepted_at):
                self._accepted_at = accepted_at.isoformat()
                self._acknowledge(run)
            case Spoken(text) if self._streaming:
                click.echo(text, nl=False)
                self._printed += text
            case Answered() if self._printed and not self._printed.endswith("\n"):
                click.echo()
                self._printed += "\n"
            case ToolStarted(call):
                self._invocation.note(f"▸ {call.name}")
            case Notice(text):
                self._invocation.note(text)

    def finish(self, outbound: Outbound) -> None:
        if self._invocation.as_json:
            self._invocation.show({**to_json(outbound), "acceptedAt": self._accepted_at}, "")
            return
        if outbound.text and not self._printed:
            click.echo(outbound.text)
        if outbound.error:
            click.echo(f"error: {outbound.error}", err=True)


def to_json(outbound: Outbound) -> dict[str, Any]:
    """What became of a message, in the shape that `--json` prints."""
    usage = outbound.usage
    data: dict[str, Any] = {
        "text": outbound.text,
        "sessionKey": str(outbound.session),
        "sessionId": outbound.session_id,
        "runId": outbound.run,
        "model": outbound.model,
        "usage": {
            "input": usage.input,
            "output": usage.output,
            "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write,
            "cost": usage.cost,
        },
        "toolCalls": [asdict(call) for call in outbound.calls],
        "status": str(outbound.status),
    }
    if outbound.error:
        data["error"] = outbound.error
    if outbound.media:
        data["media"] = list(outbound.media)
    return data
