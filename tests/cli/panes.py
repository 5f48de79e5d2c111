"""A chat in this process, in a terminal that is emulated: keys go in, and the characters on the screen come out."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pyte
from prompt_toolkit.data_structures import Size
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from retinue.cli.chat import ChatOptions, TerminalChat
from retinue.cli.chat_files import UnsentMessages
from retinue.cli.composer import TerminalStreams
from retinue.runtime.home import load_home
from retinue.runtime.open import open_runtime
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply

PATIENCE = 60.0
ROWS = 40
_SECONDS = re.compile(r"\b\d+\.\d s\b")


class EmulatedTerminal:
    """A terminal of a given width, which remembers the lines that scrolled away."""

    encoding = "utf-8"

    def __init__(self, keys: PipeInput, columns: int, rows: int = ROWS) -> None:
        self.keys = keys
        self.written = ""
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.Stream(self.screen)
        size = Size(rows=rows, columns=columns)
        self.streams = TerminalStreams(keys, Vt100_Output(self, lambda: size, term="xterm", enable_cpr=False))  # type: ignore[arg-type]

    def write(self, text: str) -> None:
        self.written += text
        self._stream.feed(text)

    def flush(self) -> None: ...

    def fileno(self) -> int:
        raise OSError("an emulated terminal has no descriptor")

    def isatty(self) -> bool:
        return True

    @property
    def visible(self) -> str:
        """The lines on the screen, without trailing blank ones."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n")

    @property
    def text(self) -> str:
        """Everything that was shown and stayed: what scrolled away, and the screen."""
        gone = ["".join(line[at].data for at in sorted(line)).rstrip() for line in self.screen.history.top]
        return "\n".join([*gone, self.visible])

    def press(self, keys: str) -> None:
        self.keys.send_text(keys)

    def paste(self, text: str) -> None:
        self.keys.send_text(f"\x1b[200~{text}\x1b[201~")

    async def wait_for(self, condition: str | Callable[[str], bool]) -> str:
        """Wait until the screen has a text or meets a condition; return the screen."""
        try:
            with anyio.fail_after(PATIENCE):
                while not (condition in self.visible if isinstance(condition, str) else condition(self.visible)):
                    await anyio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{condition!r} did not appear on the screen:\n{self.visible}") from None
        return self.visible


def without_times(text: str) -> str:
    """Return a screen with the same time in all rows."""
    return _SECONDS.sub("0.0 s", text)


@asynccontextmanager
async def open_terminal(columns: int = 80, rows: int = ROWS) -> AsyncIterator[EmulatedTerminal]:
    with create_pipe_input() as keys:
        yield EmulatedTerminal(keys, columns, rows)


class PatientServer(ModelServer):
    """A model that answers when the test lets it."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies)
        self.may_answer = anyio.Event()
        self.may_answer.set()

    async def reply_to(self, request: Received) -> Reply:
        reply = await super().reply_to(request)
        await self.may_answer.wait()
        return reply

    @property
    def last_message(self) -> str:
        """The last message that the model was sent."""
        return str(self.model_requests[-1].json["messages"][-1]["content"])


@asynccontextmanager
async def open_chat(
    root: Path, *replies: Reply, columns: int = 80, options: ChatOptions | None = None, **config: Any
) -> AsyncIterator[tuple[EmulatedTerminal, PatientServer]]:
    """A chat that waits for its first message."""
    async with PatientServer(*replies) as model, open_terminal(columns) as terminal:
        home = HomePaths(root / "home")
        home.path.mkdir(exist_ok=True)
        provider = {
            "baseUrl": f"{model.url}/v1",
            "api": "openai-completions",
            "models": [{"id": "test-model", "contextWindow": 100_000}],
        }
        written = {
            "models": {"providers": {"test": provider}},
            "agents": {"defaults": {"model": "test/test-model", "sandbox": {"mode": "off"}}},
        }
        home.config_file.write_text(json.dumps({**written, **config}))
        loaded = load_home(home, environment={"HOME": str(root), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
        async with open_runtime(loaded) as runtime:
            key = await runtime.session_key(None, None)
            chat = TerminalChat(runtime, key, options or ChatOptions(farewell="The conversation is saved."))
            async with anyio.create_task_group() as tasks:
                unsent = UnsentMessages(home.path, key)
                tasks.start_soon(chat.hold, InMemoryHistory(), terminal.streams, unsent)
                await terminal.wait_for("you ›")
                yield terminal, model
                tasks.cancel_scope.cancel()
