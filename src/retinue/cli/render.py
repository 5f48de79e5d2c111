"""Showing a turn in a terminal while it happens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never

from retinue.cli.terminal import tame
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
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.spinner import Spinner

ARGUMENTS_SHOWN = 100
RESULT_LINES_SHOWN = {"off": 4, "on": 20, "full": 1_000_000}
"""How much of a tool's result is shown, by what `/verbose` chose."""
SECONDS_WORTH_TELLING = 0.5
DRAWINGS_PER_SECOND = 15
TELLING = ("command", "path", "url", "query", "pattern")
"""Arguments that say by themselves what a call does."""
_NOTHING_FOLLOWS = (TextDelta, ReasoningDelta, ApprovalAsked, MessageFinished, TurnFinished)
"""Events that need no sign that more is to come: words are one, and after the others nothing comes, or a question."""


def split_blocks(text: str) -> tuple[str, str]:
    """Split Markdown into the part whose blocks are complete and the block that may still grow.

    A block ends at a blank line outside a code fence, so a finished part renders the same whatever follows.
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


class Growing:
    """A block that is still being written; it becomes Markdown only when it is drawn."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich__(self) -> Markdown:
        return _to_markdown(self._text)


class TerminalView:
    """Prints a turn: finished Markdown blocks for good, the growing one live below them."""

    def __init__(
        self, console: Console, *, show_thinking: bool = False, verbose: str = "off", shows_waiting: bool = False
    ) -> None:
        from rich.live import Live

        self._console = console
        self._shows_waiting = shows_waiting and console.is_terminal and not console.is_dumb_terminal
        self._show_thinking = show_thinking
        self._result_lines = RESULT_LINES_SHOWN.get(verbose, RESULT_LINES_SHOWN["off"])
        self._pending = ""
        self._after_block = False
        self._live: Live | None = None
        self.shown = False
        """Whether any words of the answer were shown."""
        self.shown_error = False

    async def emit(self, event: TurnEvent) -> None:
        """Show one event."""
        self._show(event)
        if self._shows_waiting and self._live is None and not isinstance(event, _NOTHING_FOLLOWS):
            from rich.spinner import Spinner

            self._draw(Spinner("dots", style="dim"))

    def close(self) -> None:
        """Leave the terminal as it was, also where a turn ends without a word."""
        self._settle()

    def _show(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text):
                self._speak(text)
            case ReasoningDelta(text):
                if self._show_thinking:
                    self._stop_live()
                    self._console.print(tame(text), style="dim italic", end="", markup=False, highlight=False)
            case ToolStarted(call):
                self._settle()
                self._line(f"▸ {call.name} {_brief(call.arguments)}", "cyan")
            case ToolProgress(text=text):
                self._settle()
                self._line(f"  {text}", "dim")
            case ToolFinished(call, result, seconds):
                self._settle()
                self._result(result.text, result.is_error, seconds)
            case ApprovalAsked():
                self._settle()
            case ApprovalGiven(decision=decision):
                from retinue.tools.approval_view import spell_decision

                self._settle()
                self._line(f"  {spell_decision(decision)}", "dim")
            case Notice(text):
                self._settle()
                self._line(f"• {text}", "yellow")
            case MessageFinished():
                self._settle()
            case TurnFinished(status=status, error=error):
                self._settle()
                if status is TurnStatus.ABORTED:
                    self._line("(stopped)", "yellow")
                elif error:
                    self._line(error, "red")
                    self.shown_error = True
            case TurnStarted() | Accepted():
                pass
            case _:
                assert_never(event)

    def _speak(self, text: str) -> None:
        self.shown = True
        done, self._pending = split_blocks(self._pending + text)
        if done.strip():
            self._stop_live()
            self._print_block(done)
        if self._pending.strip():
            self._draw(Growing(self._pending))

    def _draw(self, picture: Growing | Spinner) -> None:
        """Show something below what is printed for good, until that goes on.

        It is drawn a few times a second: doing it for every word would take longer than the model does.
        """
        from rich.live import Live

        if self._live is None:
            self._live = Live(
                console=self._console,
                refresh_per_second=DRAWINGS_PER_SECOND,
                transient=True,
                vertical_overflow="crop",
            )
            self._live.start()
        self._live.update(picture)

    def _settle(self) -> None:
        """Print what is still growing for good."""
        self._stop_live()
        if self._pending.strip():
            self._print_block(self._pending)
        self._pending = ""
        self._after_block = False

    def _print_block(self, markdown: str) -> None:
        """Print a finished block for good, one blank line after the block before it."""
        from rich.text import Text

        with self._console.capture() as rendered:
            self._console.print(_to_markdown(markdown))
        if self._after_block:
            self._console.print()
        self._console.print(Text.from_ansi(rendered.get().strip("\n")))
        self._after_block = True

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _line(self, text: str, style: str) -> None:
        self._console.print(tame(text), style=style, markup=False, highlight=False)

    def _result(self, text: str, is_error: bool, seconds: float) -> None:
        lines = text.strip().splitlines()
        for line in lines[: self._result_lines]:
            self._line(f"  {tame(line)[: self._console.width - 4]}", "red" if is_error else "dim")
        more = len(lines) - self._result_lines
        remarks = [f"… {more} more lines"] if more > 0 else []
        if seconds >= SECONDS_WORTH_TELLING:
            remarks.append(f"{seconds:.1f} s")
        if remarks:
            self._line(f"  {', '.join(remarks)}", "dim")


def _to_markdown(text: str) -> Markdown:
    """Markdown as the terminal shows it; where a link leads is written out, because its words may say otherwise."""
    from rich.markdown import Markdown

    return Markdown(tame(text), hyperlinks=False)


def _brief(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call on one line."""
    telling = next((arguments[name] for name in TELLING if name in arguments), None)
    if telling is not None or len(arguments) == 1:
        value = telling if telling is not None else next(iter(arguments.values()))
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    else:
        text = json.dumps(dict(arguments), ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= ARGUMENTS_SHOWN else text[: ARGUMENTS_SHOWN - 1] + "…"
