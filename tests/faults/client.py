"""A program that talks on a home, with one tool whose effects are counted outside of it.

`python -m tests.faults.client HOME KEY TEXT LEDGER` says one message. It prints `accepted RUN TEXT` once the message
is acknowledged and `answered RUN STATUS` at its end. With `--messages N` it goes on with TEXT-0, TEXT-1 and so on. With
`--die-at N` it kills itself at its N-th durable write, before it, after it or, where it is a line, in the middle. With
`--largest-file BYTES` the system refuses to let any file grow beyond that.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from retinue.core.envelope import Inbound
from retinue.core.errors import RetinueError
from retinue.core.events import Accepted, TurnEvent
from retinue.core.keys import SessionKey
from retinue.runtime.home import load_home
from retinue.runtime.open import Runtime, open_runtime
from retinue.storage.home_paths import HomePaths
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput
from retinue.tools.toolset import Toolset

MANNERS = ("before", "torn", "after")
EFFECT_SECONDS = 0.002
STANDARD_STREAMS = (1, 2)

write_now = os.write
"""The system's own, whatever stands in its place later."""


def tell(line: str) -> None:
    """Print at once, in one write, so that a line is out or not."""
    write_now(1, f"{line}\n".encode())


class EffectArguments(Arguments):
    """What the effect is for."""

    text: str


def effect_tool(ledger: Path) -> Tool[EffectArguments]:
    """A tool that leaves one line per run in a file that nothing else writes to."""

    async def run(arguments: EffectArguments, context: ToolContext) -> ToolOutput:
        await anyio.sleep(EFFECT_SECONDS)
        descriptor = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            write_now(descriptor, f"{context.call_id} {arguments.text}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        await anyio.sleep(EFFECT_SECONDS)
        return ToolOutput.of(f"took effect for {arguments.text}")

    return Tool("effect", "Take effect.", "Take effect once, visibly.", EffectArguments, run)


def with_effect_only(runtime: Runtime, ledger: Path) -> None:
    """Let the agents of a runtime have this one tool."""
    runtime.shared.tools.toolset = Toolset([effect_tool(ledger)])


@dataclass(slots=True)
class Reaper:
    """Kills this process at one of its durable writes."""

    at: int
    manner: str
    seen: int = 0

    def around(self, act: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """Do a durable write, unless its number is up."""
        self.seen += 1
        if self.seen != self.at:
            return act()
        if self.manner == "torn" and half is not None:
            half()
        elif self.manner == "after":
            act()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def watch(self) -> None:
        """Count every write, rename and commit of this process from now on."""
        rename, replace_file, reaper = os.rename, os.replace, self

        def write(descriptor: int, data: bytes) -> int:
            if descriptor in STANDARD_STREAMS:
                return write_now(descriptor, data)
            written: int = reaper.around(
                lambda: write_now(descriptor, data), lambda: write_now(descriptor, bytes(data)[: len(data) // 2])
            )
            return written

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                act = super().execute
                if sql != "COMMIT":
                    return act(sql, *values)
                cursor: sqlite3.Cursor = reaper.around(lambda: act(sql))
                return cursor

        connect = sqlite3.connect
        os.write = write  # type: ignore[assignment]
        os.rename = lambda *names, **folders: reaper.around(lambda: rename(*names, **folders))
        os.replace = lambda *names, **folders: reaper.around(lambda: replace_file(*names, **folders))
        sqlite3.connect = lambda *args, **options: connect(*args, **options, factory=Connection)  # type: ignore[assignment]


async def talk(home: HomePaths, key: SessionKey, texts: Sequence[str], ledger: Path) -> None:
    """Say the texts one after the other and tell what became of each."""
    environment = {"HOME": str(home.path.parent), "PATH": "/usr/bin:/bin"}
    async with open_runtime(load_home(home, environment=environment)) as runtime:
        with_effect_only(runtime, ledger)
        for text in texts:

            async def show(event: TurnEvent, text: str = text) -> None:
                if isinstance(event, Accepted):
                    tell(f"accepted {event.run} {text}")

            outbound = await runtime.say(Inbound(f"Please do <{text}>.", key), show)
            error = re.sub(r"\s+", " ", outbound.error or "")
            tell(f"answered {outbound.run} {outbound.status} {error}".rstrip())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Talk on a home, and perhaps die.")
    parser.add_argument("home", type=Path)
    parser.add_argument("key")
    parser.add_argument("text")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--die-at", type=int, default=0)
    parser.add_argument("--manner", choices=MANNERS, default="before")
    parser.add_argument("--largest-file", type=int, default=0)
    chosen = parser.parse_args(arguments)
    reaper = Reaper(chosen.die_at, chosen.manner)
    if chosen.die_at:
        reaper.watch()
    if chosen.largest_file:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (chosen.largest_file, chosen.largest_file))
    texts = [f"{chosen.text}-{number}" for number in range(chosen.messages)] or [chosen.text]
    try:
        anyio.run(talk, HomePaths(chosen.home), SessionKey.parse(chosen.key), texts, chosen.ledger)
    except RetinueError as error:
        tell(f"failed {type(error).__name__} {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
