"""The terminal of a chat as the turn view sees it: permanent output, and panes that are drawn anew below it."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from retinue.cli.terminal import format_span, tame, width

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.markdown import Markdown

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_SECOND = 10
SECONDS_WORTH_TELLING = 1.0
QUEUED_SHOWN = 5
MIN_PANE_LINES = 3


class Activity(Struct, frozen=True):
    """What a turn waits for; with `until`, a moment at which it continues, and `because` why not now."""

    label: str
    since: float
    until: float | None = None
    because: str = ""

    def format(self, now: float) -> str:
        """Format the activity on one line, with the time that has passed or that is left."""
        if self.until is not None:
            left = max(0.0, self.until - now)
            when = f"in {format_span(math.ceil(left))}" if left >= 1 else "now"
            return f"{self.label} {when}" + (f": {self.because}" if self.because else "")
        passed = now - self.since
        return f"{self.label}  {format_span(passed)}" if passed >= SECONDS_WORTH_TELLING else self.label


class Pane(Struct):
    """The part of the live area that belongs to one turn."""

    growing: str = ""
    """Markdown of a block that is still growing."""
    activities: dict[str, Activity] = field(default_factory=dict)


class Screen:
    """Permanent output, which scrolls, and the state of the live area below it."""

    def __init__(
        self,
        write: Callable[[str], None],
        columns: Callable[[], int],
        *,
        colours: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`write` prints text above the live area and draws the live area anew."""
        self._write = write
        self._columns = columns
        self._colours = colours
        self.clock = clock
        self.panes: list[Pane] = []
        self.queued: list[str] = []
        """Messages that are sent after the current answer."""
        self.choices = ""
        """The keys that answer the question above."""
        self.status = ""
        self._drawn: tuple[object, list[str]] = (None, [])

    @property
    def columns(self) -> int:
        return self._columns()

    @property
    def is_busy(self) -> bool:
        """Whether something moves, so that the live area must be drawn anew."""
        return any(pane.activities or pane.growing for pane in self.panes)

    def open_pane(self) -> Pane:
        pane = Pane()
        self.panes.append(pane)
        return pane

    def close_pane(self, pane: Pane) -> None:
        self.panes = [each for each in self.panes if each is not pane]

    def print(self, text: str, style: str = "", *, markdown: bool = False) -> None:
        """Print text permanently, without markup and control sequences."""
        from rich.text import Text

        self._write(self.render(to_markdown(text) if markdown else Text(tame(text), style=style)))

    def print_all(self, pieces: list[RenderableType]) -> None:
        """Print several pieces at once."""
        if pieces:
            self._write("".join(map(self.render, pieces)))

    def render(self, piece: RenderableType) -> str:
        console = self._make_console()
        console.print(piece, markup=False, highlight=False)
        lines = console.file.getvalue().split("\n")  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in lines)

    def live_lines(self, rows: int) -> list[str]:
        """Return the lines of the live area, with colours, for a terminal of this height."""
        columns, now = self.columns, self.clock()
        lines: list[str] = []
        for pane in self.panes:
            if pane.growing.strip():
                lines += self._draw_growing(pane.growing)[-max(MIN_PANE_LINES, rows - 12) :]
            if self.choices:
                continue
            frame = SPINNER[int(now * FRAMES_PER_SECOND) % len(SPINNER)]
            lines += [
                self._style(cut(f"{frame} {activity.format(now)}", columns), "dim")
                for activity in pane.activities.values()
            ]
        shown = self.queued[:QUEUED_SHOWN]
        lines += [self._style(cut(f"  queued › {one_line(text)}", columns), "dim") for text in shown]
        if len(self.queued) > len(shown):
            lines.append(self._style(f"  and {len(self.queued) - len(shown)} more", "dim"))
        if self.choices:
            lines += [self._style(line, "bold yellow") for line in wrap_choices(self.choices, columns)]
        return lines

    def _draw_growing(self, markdown: str) -> list[str]:
        key = (markdown, self.columns)
        if self._drawn[0] != key:
            self._drawn = (key, self.render(to_markdown(markdown)).strip("\n").split("\n"))
        return self._drawn[1]

    def _style(self, text: str, style: str) -> str:
        from rich.text import Text

        return self.render(Text(tame(text), style=style, no_wrap=True)).rstrip("\n")

    def _make_console(self) -> Console:
        from rich.console import Console

        return Console(
            file=io.StringIO(),
            width=self.columns,
            force_terminal=self._colours,
            color_system="auto" if self._colours else None,
        )


def to_markdown(text: str) -> Markdown:
    """Markdown for the terminal; link targets are printed, because the link text may be misleading."""
    from rich.markdown import Markdown

    return Markdown(tame(text), hyperlinks=False)


def one_line(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def cut(text: str, columns: int) -> str:
    """Cut a line to a width; the last character shows that something is missing."""
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 1:
        text = text[: columns - 1] if len(text) > columns - 1 else text[:-1]
    return f"{text.rstrip()}…"


def wrap_choices(choices: str, columns: int) -> list[str]:
    """Wrap the keys of a question between the answers, which two spaces separate."""
    lines = [""]
    for choice in choices.split("  "):
        joined = f"{lines[-1]}  {choice}" if lines[-1] else choice
        if width(joined) > columns and lines[-1]:
            lines.append(choice)
        else:
            lines[-1] = joined
    return lines
