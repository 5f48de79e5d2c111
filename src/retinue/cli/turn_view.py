"""Show a turn in the terminal while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from msgspec import Struct

from retinue.cli.model_advice import advise
from retinue.cli.screen import Activity, Screen, cut, one_line, to_markdown
from retinue.cli.terminal import tame
from retinue.cli.tool_rows import Report, format_row, format_seconds, read_before, report_call
from retinue.core.events import (
    Accepted,
    ApprovalAsked,
    ApprovalGiven,
    MessageFinished,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
    TurnStatus,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from retinue.core.messages import ToolCall, Usage

MODEL = "model"
"""The activity of the model; the others have the ids of tool calls."""


def split_blocks(text: str) -> tuple[str, str]:
    """Split Markdown into the part whose blocks are complete and the block that may still grow.

    A block ends at a blank line outside a code fence, so the finished part does not change with later text.
    """
    fence: str | None = None
    end = position = 0
    for line in text.splitlines(keepends=True):
        position += len(line)
        bare = line.strip()
        mark = bare[:3] if bare.startswith(("```", "~~~")) else None
        if mark and fence is None:
            fence = mark
        elif mark and mark == fence:
            fence = None
            if line.endswith("\n"):
                end = position
        elif not bare and fence is None and line.endswith("\n"):
            end = position
    return text[:end], text[end:]


class ViewOptions(Struct, frozen=True):
    """How a turn is shown. `workspace` is where the files are that tools change, if they can be read here."""

    thinking: bool = False
    verbose: str = "off"
    shows_waiting: bool = False
    workspace: str = ""


class TurnView:
    """Shows a turn: finished Markdown blocks and tool rows permanently, the rest in a pane below them."""

    def __init__(self, screen: Screen, options: ViewOptions) -> None:
        self._screen = screen
        self._options = options
        self._pane = screen.open_pane()
        self._before: dict[str, str | None] = {}
        self._model = ""
        self._thought = ""
        self._after_block = False
        self.shown = False
        """Whether any text of the answer was shown."""
        self.shown_error = False
        self.usage: Usage | None = None
        """The usage of the last call of the model."""

    async def emit(self, event: TurnEvent) -> None:
        """Show one event."""
        if not isinstance(event, ReasoningDelta):
            self._print_thought("\n")
        match event:
            case Accepted():
                self._wait_for("waiting for its turn")
            case TurnStarted(model=model):
                self._model = model
                self._wait_for_model()
            case TextDelta(text):
                self._stop_waiting()
                self._speak(text)
            case ReasoningDelta(text):
                self._reason(text)
            case MessageFinished(message):
                self._settle()
                self.usage = message.usage
            case ToolStarted(call):
                self._begin_call(call)
            case ToolProgress(call_id, text):
                self._show_progress(call_id, text)
            case ToolFinished():
                self._end_call(event)
            case ApprovalAsked():
                self._settle()
                self._stop_waiting()
            case ApprovalGiven(decision=decision):
                from retinue.tools.approvals.view import format_decision

                self._screen.print(f"  {format_decision(decision)}", "dim")
            case Notice(text, wait_seconds):
                self._notify(text, wait_seconds)
            case TurnFinished():
                self._finish(event)
            case _:
                assert_never(event)

    def close(self) -> None:
        """End the view, also if the turn ended without its last event."""
        self._settle()
        self._screen.close_pane(self._pane)

    def _speak(self, text: str) -> None:
        self.shown = True
        done, self._pane.growing = split_blocks(self._pane.growing + text)
        if done.strip():
            self._print_block(done)

    def _settle(self) -> None:
        """Print the growing block permanently."""
        growing, self._pane.growing = self._pane.growing, ""
        if growing.strip():
            self._print_block(growing)
        self._after_block = False

    def _print_block(self, markdown: str) -> None:
        """Print a finished block permanently, separated by one blank line."""
        from rich.text import Text

        block = Text.from_ansi(self._screen.render(to_markdown(markdown)).strip("\n"))
        self._screen.print_all([Text(), block] if self._after_block else [block])
        self._after_block = True

    def _reason(self, text: str) -> None:
        self._wait_for(f"{self._model or 'the model'} is reasoning")
        if self._options.thinking:
            self._print_thought(text)

    def _print_thought(self, text: str) -> None:
        """Print the complete lines of the reasoning; `\\n` ends it."""
        if text == "\n" and not self._thought:
            return
        done, newline, self._thought = (self._thought + text).rpartition("\n")
        if newline:
            self._screen.print(done, "dim italic")

    def _wait_for(self, label: str) -> None:
        known = self._pane.activities.get(MODEL)
        if self._options.shows_waiting and (known is None or known.label != label):
            self._pane.activities[MODEL] = Activity(label, self._screen.clock())

    def _wait_for_model(self) -> None:
        self._wait_for(f"waiting for {self._model or 'the model'}")

    def _stop_waiting(self) -> None:
        self._pane.activities.pop(MODEL, None)

    def _begin_call(self, call: ToolCall) -> None:
        self._settle()
        self._stop_waiting()
        self._before[call.id] = read_before(call, self._options.workspace)
        self._pane.activities[call.id] = Activity(format_row(call), self._screen.clock())

    def _end_call(self, event: ToolFinished) -> None:
        self._settle()
        call = event.call
        self._pane.activities.pop(call.id, None)
        report = report_call(call, event.result, self._before.pop(call.id, None), self._options.verbose)
        self._print_row(call, report, event.seconds, is_error=event.result.is_error)
        if not self._pane.activities:
            self._wait_for_model()

    def _show_progress(self, call_id: str, text: str) -> None:
        """Show the last line that a call reported; its result has all of them."""
        running = self._pane.activities.get(call_id)
        lines = text.strip().splitlines()
        if running is not None and lines:
            name = running.label.split("\n", 1)[0].split(" │ ", 1)[0]
            self._pane.activities[call_id] = Activity(f"{name} │ {one_line(lines[-1])}", running.since)

    def _print_row(self, call: ToolCall, report: Report, seconds: float, *, is_error: bool) -> None:
        from rich.text import Text

        columns = self._screen.columns
        remarks = "  ".join(filter(None, (report.summary, format_seconds(seconds))))
        row = cut(tame(format_row(call)), max(10, columns - len(remarks) - 5))
        pieces: list[RenderableType] = [
            Text.assemble(("✗ " if is_error else "▸ ", "red" if is_error else "cyan"), (row, "cyan"), f"  {remarks}")
        ]
        pieces += [Text(cut(f"  {tame(line.text.expandtabs(4))}", columns), style=line.style) for line in report.lines]
        self._screen.print_all(pieces)

    def _notify(self, text: str, wait_seconds: float | None) -> None:
        """Print a notice; a pause is counted down instead, if the turn's activity is shown."""
        self._settle()
        if wait_seconds is None or not self._options.shows_waiting:
            self._screen.print(f"• {text}", "yellow")
            return
        # "… does not answer; trying again in 8 s (retry 2 of 5)": the countdown takes the place of the pause
        because, separator, how = text.partition("; trying again in ")
        retry = how.partition("(")[2].rstrip(").") if separator else ""
        now = self._screen.clock()
        self._pane.activities[MODEL] = Activity(retry or "continuing", now, now + wait_seconds, because)

    def _finish(self, event: TurnFinished) -> None:
        self._settle()
        self._pane.activities.clear()
        if event.status is TurnStatus.ABORTED:
            self._screen.print("(stopped)", "yellow")
        elif event.error:
            self.show_error(event.error, advise(event.failure, event.error, event.model, in_chat=True))

    def show_error(self, error: str, advice: str = "") -> None:
        """Print why there is no answer, and what to do."""
        self._screen.print(error, "red")
        if advice:
            self._screen.print(f"→ {advice}", "yellow")
        self.shown_error = True
