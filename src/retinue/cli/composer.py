"""The input of a chat: it stays open while answers are written above it, and takes the keys that answer questions."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
from msgspec import Struct
from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ConditionalCompleter, WordCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output import Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from retinue.cli.screen import FRAMES_PER_SECOND, Screen

if TYPE_CHECKING:
    from prompt_toolkit.key_binding.key_processor import KeyProcessor

T = TypeVar("T")

PROMPT = "you › "
QUIET_SECONDS = 0.5
"""How long no key must have been pressed before keys answer a question."""
MENU_ROWS = 8
MIN_INPUT_ROWS = 4
MAX_PASTED_LINES, MAX_PASTED_CHARS = 8, 1_000
"""A larger paste is shown as a label, and sent as a whole."""
_LABEL = re.compile(r"\[pasted text #(\d+), [^\]\n]*\]")


class Stopped(Exception):
    """The person pressed Ctrl-C instead of answering."""


class Actions(Struct, frozen=True):
    """What the composer calls: `submit` with a message, `interrupt` for Ctrl-C, `take_back` for Alt-Up."""

    submit: Callable[[str], None]
    interrupt: Callable[[], None]
    take_back: Callable[[], str | None]
    """Removes the message that was queued last, and returns it."""


class TerminalStreams(Struct, frozen=True):
    """The keys of a terminal and its screen."""

    keys: Input
    output: Output


class Pastes:
    """Large pasted texts, which the input shows as labels."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def take(self, text: str) -> str:
        """Return what to insert for a pasted text."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= MAX_PASTED_LINES and len(text) <= MAX_PASTED_CHARS:
            return text
        number = len(self._texts) + 1
        self._texts[number] = text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[pasted text #{number}, {size}]"

    def expand(self, text: str) -> str:
        """Replace the labels in a text by what was pasted."""
        return _LABEL.sub(lambda found: self._texts.get(int(found[1]), found[0]), text)


class Composer:
    """The live area of a screen, the input below it and the status line."""

    def __init__(self, actions: Actions, history: History, terminal: TerminalStreams) -> None:
        self._actions = actions
        self._output = terminal.output
        self.screen = Screen(self._write, lambda: self._output.get_size().columns)
        self.pastes = Pastes()
        self.commands: Sequence[str] = ()
        self._held: list[str] | None = None
        self._answers: Mapping[str, Callable[[], None]] = {}
        self._pressed_at = -QUIET_SECONDS
        is_command = Condition(lambda: self._buffer.text.startswith("/"))
        self._buffer = Buffer(
            multiline=True,
            history=history,
            completer=ConditionalCompleter(WordCompleter(lambda: list(self.commands), sentence=True), is_command),
            complete_while_typing=is_command,
            enable_history_search=True,
        )
        self._app = self._make_application(terminal.keys)
        self._app.key_processor.before_key_press += self._note_key

    async def run(self) -> None:
        """Read until `close` is called, Ctrl-D is pressed or the terminal is closed."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._animate)
            with suppress(EOFError):
                await self._app.run_async(handle_sigint=False)
            tasks.cancel_scope.cancel()

    def close(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def draw(self) -> None:
        """Draw the live area soon, because it has changed."""
        self._app.invalidate()

    def put_back(self, text: str) -> None:
        """Put text before what is typed now."""
        typed = self._buffer.text
        whole = f"{text}\n{typed}" if typed else text
        self._buffer.document = Document(whole, len(whole))
        self.draw()

    async def choose(self, choices: str, answers: Mapping[str, T]) -> T:
        """Wait for one of the keys; raises `Stopped` for Ctrl-C.

        Keys count only after a pause, so that a message that is being typed does not answer the question.
        """
        chosen: list[T] = []
        stopped = False
        done = anyio.Event()

        def answer(key: str) -> None:
            chosen.append(answers[key])
            done.set()

        def stop() -> None:
            nonlocal stopped
            stopped = True
            done.set()

        try:
            await self._wait_for_pause()
            self._answers = {key: partial(answer, key) for key in answers} | {"c-c": stop}
            self.screen.choices = choices
            self.draw()
            await done.wait()
        finally:
            self._answers = {}
            self.screen.choices = ""
            self.draw()
        if stopped:
            raise Stopped
        return chosen[0]

    async def _wait_for_pause(self) -> None:
        while (pause := self._pressed_at + QUIET_SECONDS - time.monotonic()) > 0:  # noqa: ASYNC110 - a key extends it
            await anyio.sleep(pause)

    def _note_key(self, _: KeyProcessor) -> None:
        self._pressed_at = time.monotonic()

    async def _animate(self) -> None:
        """Draw the live area while something in it moves."""
        while True:
            await anyio.sleep(1 / FRAMES_PER_SECOND)
            if self.screen.is_busy and not self.screen.choices:
                self.draw()

    def _write(self, text: str) -> None:
        """Print text above the live area. While an editor has the terminal, text is held back."""
        if not text:
            return
        if self._held is not None:
            self._held.append(text)
            return
        drawn = self._app.is_running and not self._app.is_done
        if drawn:
            self._app.renderer.erase()
        self._output.write_raw(text.replace("\n", "\r\n"))
        self._output.flush()
        if drawn:
            with set_app(self._app):
                self._app.renderer.render(self._app, self._app.layout)

    def _make_application(self, keys: Input) -> Application[None]:
        search = SearchToolbar()
        control = BufferControl(self._buffer, search_buffer_control=search.control)
        window = Window(
            control,
            height=self._input_height,
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=lambda line, wrapped: self._prefix(first=line == 0 and wrapped == 0),
        )
        body = HSplit(
            [
                Window(FormattedTextControl(self._live_text), dont_extend_height=True, height=self._live_height),
                window,
                search,
                Window(FormattedTextControl(self._status_text), height=self._status_height, dont_extend_height=True),
            ],
            align=VerticalAlign.TOP,
        )
        menu = Float(CompletionsMenu(max_height=MENU_ROWS, scroll_offset=1), xcursor=True, ycursor=True)
        return Application(
            Layout(FloatContainer(body, [menu]), focused_element=window),
            key_bindings=self._bind_keys(),
            style=Style.from_dict({"status": "#808080", "prompt": "bold"}),
            erase_when_done=True,
            min_redraw_interval=0.03,
            input=keys,
            output=self._output,
        )

    def _rows(self) -> int:
        return self._output.get_size().rows

    def _live_text(self) -> ANSI:
        return ANSI("\n".join(self.screen.live_lines(self._rows())))

    def _live_height(self) -> Dimension:
        return Dimension.exact(len(self.screen.live_lines(self._rows())))

    def _status_text(self) -> StyleAndTextTuples:
        return [("class:status", self.screen.status[: self.screen.columns])]

    def _status_height(self) -> int:
        return 1 if self.screen.status else 0

    def _input_height(self) -> Dimension:
        least = MENU_ROWS if self._buffer.complete_state is not None else 1
        return Dimension(min=least, max=max(MIN_INPUT_ROWS, least, self._rows() // 3))

    def _prefix(self, *, first: bool) -> StyleAndTextTuples:
        return [("class:prompt", PROMPT if first and not self._answers else " " * len(PROMPT))]

    def _bind_keys(self) -> KeyBindings:
        bindings = KeyBindings()
        asking = Condition(lambda: bool(self._answers))
        empty = Condition(lambda: not self._buffer.text)
        bindings.add("enter", filter=~asking & ~is_searching)(self._submit)
        for keys in (("escape", "enter"), ("c-j",)):
            bindings.add(*keys, filter=~asking)(lambda event: self._buffer.newline(copy_margin=False))
        bindings.add(Keys.BracketedPaste, filter=~asking)(self._paste)
        for keys in (("c-x", "c-e"), ("c-g",)):
            bindings.add(*keys, filter=~asking & ~is_searching)(self._edit)
        bindings.add("escape", "up", filter=~asking)(self._take_back)
        bindings.add("c-c", filter=~asking)(self._interrupt)
        bindings.add("c-d", filter=empty & ~asking)(lambda event: event.app.exit())
        bindings.add("c-z")(lambda event: event.app.suspend_to_background())
        bindings.add(Keys.Any, filter=asking, eager=True)(self._answer)
        return bindings

    def _submit(self, event: KeyPressEvent) -> None:
        typed = self._buffer.text
        self._buffer.append_to_history()
        self._buffer.reset()
        if typed.strip():
            self._actions.submit(typed)

    def _paste(self, event: KeyPressEvent) -> None:
        self._buffer.insert_text(self.pastes.take(event.data))

    def _take_back(self, event: KeyPressEvent) -> None:
        text = self._actions.take_back()
        if text is not None:
            self.put_back(text)

    def _interrupt(self, event: KeyPressEvent) -> None:
        if self._buffer.text and not self.screen.is_busy:
            self._buffer.reset()
        else:
            self._actions.interrupt()

    def _answer(self, event: KeyPressEvent) -> None:
        """Take any key while a question is open; most have no effect."""
        pressed = event.key_sequence[0].key
        act = self._answers.get("c-c" if pressed == Keys.ControlC else event.data.lower())
        if act is not None:
            act()

    def _edit(self, event: KeyPressEvent) -> None:
        if find_editor() is None:
            self.screen.print(
                "No editor was found. Set the environment variable EDITOR, such as EDITOR=nano.", "yellow"
            )
            return
        event.app.create_background_task(self._edit_elsewhere())

    async def _edit_elsewhere(self) -> None:
        """Edit the input in an external editor; pasted texts appear in full."""
        self._buffer.text = self.pastes.expand(self._buffer.text)
        self._held = []
        try:
            await self._buffer.open_in_editor()
        finally:
            held, self._held = self._held, None
            edited = self._buffer.text
            shown = self.pastes.take(edited)
            self._buffer.document = Document(shown, len(shown))
            self._write("".join(held))


def find_editor() -> str | None:
    """Return the editor that will be used: that of the environment, else a usual one."""
    for command in (os.environ.get("VISUAL"), os.environ.get("EDITOR"), "editor", "nano", "pico", "vi", "emacs"):
        if command and (found := shutil.which(shlex.split(command)[0])):
            return found
    return None


def open_terminal() -> TerminalStreams:
    """Open this process's terminal. It is not asked for the cursor's position, which the live area does not need."""
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return TerminalStreams(create_input(always_prefer_tty=True), output)
