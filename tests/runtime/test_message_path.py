"""The path of a message: how many functions and files lie between a command or a client and the model's request."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import httpx2
import pytest

import retinue
from retinue.core.approval import nobody_to_ask
from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent
from retinue.core.keys import RunId, SessionKey
from retinue.testing.replies import says
from tests.runtime.conftest import staged

pytestmark = pytest.mark.anyio

MAX_FRAMES = 18
MAX_FILES = 10
PACKAGE = Path(retinue.__file__).parent
KEY = SessionKey.parse("agent:main:main")

TRACED_COMMAND = """
import json, sys
import httpx2
from tests.runtime.test_message_path import own_frames

send = httpx2.AsyncClient.send

async def traced(self, request, **options):
    with open(sys.argv[1], "w") as file:
        json.dump(own_frames(sys._getframe()), file)
    return await send(self, request, **options)

httpx2.AsyncClient.send = traced

from retinue.cli.main import run

sys.exit(run(sys.argv[2:]))
"""


def own_frames(frame: FrameType | None) -> list[tuple[str, str]]:
    """The functions of this package on the stack, outermost first, each with its file."""
    found = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            found.append((path.relative_to(PACKAGE).as_posix(), frame.f_code.co_qualname))
        frame = frame.f_back
    return found[::-1]


def check(name: str, frames: list[tuple[str, str]]) -> None:
    files = dict.fromkeys(file for file, _ in frames)
    print(f"{name}: {len(frames)} frames in {len(files)} files")
    print("\n".join(f"  {file}: {function}" for file, function in frames))
    assert 0 < len(frames) <= MAX_FRAMES
    assert len(files) <= MAX_FILES


async def test_a_turn_of_the_command_line(tmp_path: Path) -> None:
    async with staged(tmp_path, says("Hello.")) as stage:
        stage.write_config()
        trace = tmp_path / "trace.json"
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "RETINUE_HOME": str(stage.home.path)}
        command = [sys.executable, "-c", TRACED_COMMAND, str(trace), "agent", "-m", "hello"]
        ended = await anyio.run_process(command, env=environment, cwd=Path(__file__).parents[2], check=False)
    assert ended.stdout.decode().strip() == "Hello.", ended.stderr.decode()
    check("retinue agent", [(file, function) for file, function in json.loads(trace.read_text())])


async def test_a_turn_of_a_process_that_serves_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[list[tuple[str, str]]] = []
    send = httpx2.AsyncClient.send

    async def traced(self: httpx2.AsyncClient, request: httpx2.Request, **options: Any) -> httpx2.Response:
        traces.append(own_frames(sys._getframe()))
        return await send(self, request, **options)

    def publish(session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
        """No client watches."""

    monkeypatch.setattr(httpx2.AsyncClient, "send", traced)
    async with (
        staged(tmp_path, says("Hello.")) as stage,
        stage.open() as runtime,
        runtime.dispatcher.serving(publish, nobody_to_ask) as dispatcher,
    ):
        accepted = await dispatcher.submit(Inbound("hello", KEY))
        outbound = await dispatcher.wait(accepted.run, 60)
    assert outbound is not None
    assert outbound.text == "Hello."
    check("gateway", traces[0])
