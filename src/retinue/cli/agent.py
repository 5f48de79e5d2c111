"""`retinue agent`: one turn from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import asdict, replace

from retinue.cli.common import (
    Command,
    Invocation,
    keep_logs,
    pass_invocation,
    read_piped,
    which_agent,
    which_gateway,
    which_session,
)
from retinue.cli.connect import ConnectOptions, added_skills, open_assistant
from retinue.cli.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retinue.core.api import Assistant
    from retinue.core.approval import ApprovalRequest, Ask
    from retinue.core.envelope import Inbound, Outbound
    from retinue.core.events import TurnEvent
    from retinue.core.model import Failure
    from retinue.runtime.open import Runtime
    from retinue.runtime.subagents.on_demand import OnDemandSubagents


@click.command(cls=Command)
@click.option("--message", "-m", metavar="TEXT", help="Message text (default: standard input).")
@which_agent
@which_session
@click.option("--model", metavar="REF", help="Model for this turn only: provider/model or an alias.")
@added_skills
@click.option(
    "--approvals",
    type=click.Choice(["wait", "deny"]),
    help="Without a terminal: wait for an answer from another client, or deny at once.",
)
@click.option("--no-stream", is_flag=True, help="Print the answer only when it is complete.")
@which_gateway
@pass_invocation
def agent(
    invocation: Invocation,
    message: str | None,
    agent_id: str | None,
    session: str | None,
    model: str | None,
    skills: tuple[Path, ...],
    approvals: str | None,
    no_stream: bool,
) -> int:
    """The exit code is 0 when it answered, 1 when it could not."""
    import anyio

    from retinue.core.envelope import check_message_size
    from retinue.core.errors import UsageError

    text = message if message is not None else read_piped()
    if not text.strip():
        raise UsageError("The message is empty. Use -m TEXT, or pipe the text in.")
    check_message_size(text)
    question = TurnRequest(text, agent_id, session, model)
    wanted = ConnectOptions("retinue agent", skills)
    return anyio.run(ask_once, invocation, question, wanted, no_stream, approvals)


class TurnRequest(Struct, frozen=True):
    """A message and its target: agent, session and optional model."""

    text: str
    agent: str | None = None
    session: str | None = None
    model: str | None = None


async def ask_once(
    invocation: Invocation,
    question: TurnRequest,
    wanted: ConnectOptions,
    no_stream: bool = False,
    approvals: str | None = None,
) -> int:
    """Run one turn, in the gateway if one runs, and print it; returns the exit code."""
    from retinue.core.envelope import Inbound
    from retinue.core.events import TurnStatus

    keep_logs(invocation.home)
    ask = _choose_ask(approvals)
    printer = _Printer(invocation, streaming=not (no_stream or invocation.as_json))
    wanted = replace(wanted, asks=ask is not None)
    async with open_assistant(invocation, wanted) as (assistant, runtime):
        key = await assistant.session_key(question.session, question.agent)
        inbound = Inbound(question.text, key, model=question.model, own_turn=True)
        if runtime is not None:
            outbound = await _converse(runtime, inbound, printer, ask)
        else:
            outbound = await _say(assistant, inbound, printer, ask)
            printer.finish(outbound)
    if outbound.status is TurnStatus.ABORTED:
        invocation.note("Stopped.")
        return 130
    return 0 if outbound.status is TurnStatus.OK else 1


async def _say(assistant: Assistant, inbound: Inbound, printer: _Printer, ask: Ask | None) -> Outbound:
    """Answer one message; Ctrl-C stops the turn, as in a chat."""
    import anyio

    from retinue.cli.keyboard import interruptible

    async with (
        anyio.create_task_group() as stops,
        interruptible(lambda: stops.start_soon(assistant.stop, inbound.session), once=True),
    ):
        outbound = await assistant.say(inbound, printer.emit, ask)
    printer.require_delivery()
    await assistant.confirm(outbound.run)
    return outbound


async def _converse(runtime: Runtime, inbound: Inbound, printer: _Printer, ask: Ask | None) -> Outbound:
    """Run one turn in this process and wait until its sub-agents have ended."""
    import anyio

    from retinue.core.errors import first_cause
    from retinue.runtime.subagents.on_demand import OnDemandSubagents

    try:
        async with anyio.create_task_group() as tasks:
            subagents = OnDemandSubagents(runtime.dispatcher, inbound.session, ask, tasks, attends_wakes=True)
            await subagents.open()
            outbound = await _say(runtime, inbound, printer, ask)
            if runtime.dispatcher.subagents is None:
                printer.finish(outbound)
            else:
                await _hear_out(runtime, subagents, outbound, printer)
            tasks.cancel_scope.cancel()
    except ExceptionGroup as error:
        raise first_cause(error) from error
    return outbound


async def _hear_out(runtime: Runtime, subagents: OnDemandSubagents, outbound: Outbound, printer: _Printer) -> None:
    """Wait for the sub-agents and print what the agent answers to their results."""
    import anyio

    printer.begin_waiting(outbound, subagents.at_work)
    try:
        await subagents.settle()
    except anyio.get_cancelled_exc_class():
        printer.report_running(subagents.at_work)
        raise
    later = subagents.answers()
    printer.finish_waiting(outbound, later)
    for answer in later:
        await runtime.confirm(answer.run)


def _choose_ask(approvals: str | None) -> Ask | None:
    """Choose who answers approval requests: the person at this terminal, or what the option says."""
    from retinue.cli.keyboard import TerminalAsk, deny_everything, may_ask, wait_elsewhere

    if approvals == "deny":
        return deny_everything
    if may_ask():
        return TerminalAsk()
    return wait_elsewhere if approvals == "wait" else None


class _Printer:
    """Prints an answer while it streams or when it is complete; everything else goes to standard error."""

    def __init__(self, invocation: Invocation, *, streaming: bool) -> None:
        self._invocation = invocation
        self._streaming = streaming
        self._printed = ""
        self._refused: OSError | None = None
        self._accepted_at: str | None = None
        self._failure: Failure | None = None
        self._model = ""

    def _acknowledge(self, run: str) -> None:
        """Print on standard error, for programs, that the message is stored."""
        if self._invocation.as_json:
            self._invocation.note(json.dumps({"event": "accepted", "runId": run, "acceptedAt": self._accepted_at}))

    async def emit(self, event: TurnEvent) -> None:
        from retinue.core.events import (
            Accepted,
            ApprovalAsked,
            ApprovalGiven,
            MessageFinished,
            Notice,
            TextDelta,
            ToolStarted,
            TurnFinished,
        )

        match event:
            case Accepted(run, _, accepted_at):
                self._accepted_at = accepted_at.isoformat()
                self._acknowledge(run)
            case TextDelta(text) if self._streaming:
                self._stream(text)
            case MessageFinished() if self._printed and not self._printed.endswith("\n"):
                self._stream("\n")
            case ToolStarted(call):
                self._invocation.note(f"▸ {call.name}")
            case ApprovalAsked(request):
                self._show_question(request)
            case ApprovalGiven(decision=decision):
                from retinue.tools.approvals.view import format_decision

                self._invocation.note(format_decision(decision))
            case Notice(text):
                self._invocation.note(text)
            case TurnFinished(failure=failure, model=model):
                self._failure, self._model = failure, model

    def _stream(self, text: str) -> None:
        """Print a part of the answer. If standard output is closed, the turn continues and the answer is stored."""
        self._printed += text
        if self._refused is None:
            try:
                echo(text, nl=False, exact=True)
            except OSError as error:
                self._refused = error

    def require_delivery(self) -> None:
        """Raise the `OSError` that prevented a part of the answer from being printed."""
        if self._refused is not None:
            raise self._refused

    def _show_question(self, request: ApprovalRequest) -> None:
        """Report a pending approval on standard error; a terminal shows the question itself."""
        from retinue.cli.common import ask_is_possible
        from retinue.tools.approvals.view import answer_lines, question_lines

        if self._invocation.as_json:
            data = {"event": "approval", "id": request.id, "title": request.title, "detail": request.detail}
            self._invocation.note(json.dumps(data, ensure_ascii=False))
        elif not ask_is_possible():
            self._invocation.note("\n".join([*question_lines(request), *answer_lines(request)]))

    def begin_waiting(self, outbound: Outbound, at_work: int) -> None:
        """Print an answer that more may follow; with `--json` everything is printed at the end."""
        if not self._invocation.as_json:
            self.finish(outbound)
        if at_work:
            self._invocation.note(f"waiting for {at_work} sub-agent{'s' if at_work > 1 else ''}; Ctrl-C leaves them")

    def finish_waiting(self, outbound: Outbound, later: Sequence[Outbound]) -> None:
        """Print messages that followed the answer."""
        if self._invocation.as_json:
            self.finish(outbound, later)
            return
        for answer in later:
            self._printed = ""
            self.finish(answer)

    def report_running(self, at_work: int) -> None:
        """Report the sub-agents that are still running."""
        if at_work:
            which = f"{at_work} sub-agents are" if at_work > 1 else "a sub-agent is"
            self._invocation.note(
                f"{which} interrupted; the next turn of this session, or the gateway, resumes the work"
            )

    def finish(self, outbound: Outbound, later: Sequence[Outbound] = ()) -> None:
        from retinue.security.redaction import redact_everything

        if self._invocation.as_json:
            data = {**to_json(outbound), "acceptedAt": self._accepted_at}
            self._invocation.show({**data, "later": [to_json(each) for each in later]} if later else data, "")
            return
        if outbound.text and not self._printed:
            self._invocation.show({}, outbound.text)
        if outbound.error:
            from retinue.cli.model_advice import advise

            echo(redact_everything(f"error: {outbound.error}"), err=True)
            advice = advise(self._failure, outbound.error, self._model, in_chat=False)
            if advice:
                self._invocation.note(advice)


def to_json(outbound: Outbound) -> dict[str, Any]:
    """The outcome of a message in the shape that `--json` prints."""
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
        data["error"] = {"kind": "MessageRefused" if outbound.refused else "TurnFailed", "message": outbound.error}
    if outbound.media:
        data["media"] = list(outbound.media)
    return data
