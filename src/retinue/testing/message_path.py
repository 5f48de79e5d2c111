"""The call stack at a model request: the functions and files that a message passes through.

The stack is recorded in a separate process that runs the real command line or gateway against a scripted model, so that
it does not contain the measurement.
"""

from __future__ import annotations

import inspect
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from msgspec import Struct

from retinue.testing.modelserver import running_server

SOURCE = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 60.0
RECORDING = "RETINUE_RECORD_STACK"
"""The variable that names the file to which `record_stacks` writes."""

# In a string, because this layer must not import the command line.
_PROGRAM = """
import sys
from retinue.testing.message_path import record_stacks
record_stacks()
from retinue.cli.main import main
main()
"""


class Step(Struct, frozen=True):
    """A function on the stack, and its file relative to the package."""

    file: str
    function: str


class MessagePath(Struct, frozen=True):
    """The package's own functions on the stack at the first request to a model, the outermost first."""

    steps: tuple[Step, ...]

    @property
    def frames(self) -> int:
        return len(self.steps)

    @property
    def files(self) -> tuple[str, ...]:
        """The files in the order in which the message enters them."""
        return tuple(dict.fromkeys(step.file for step in self.steps))


def record_stacks() -> None:
    """Write the stack at the first HTTP request of this process to the file named by the variable."""
    from retinue.providers.http_client import EndpointClient, EndpointResponse

    post = EndpointClient.post
    target = Path(os.environ[RECORDING])

    async def recording(client: EndpointClient, *request: Any) -> EndpointResponse:
        if not target.exists():
            partial = target.with_suffix(".part")
            partial.write_text(json.dumps(_own_frames(inspect.currentframe())))
            partial.rename(target)  # a reader waits for this name
        return await post(client, *request)

    EndpointClient.post = recording  # type: ignore[method-assign, assignment]


def _own_frames(innermost: FrameType | None) -> list[tuple[str, str]]:
    found = []
    frame = innermost
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(SOURCE) and not path.is_relative_to(SOURCE / "testing"):
            found.append((path.relative_to(SOURCE).as_posix(), frame.f_code.co_qualname))
        frame = frame.f_back
    return found[::-1]


def trace_message(folder: Path, through: Literal["terminal", "gateway"] = "terminal") -> MessagePath:
    """Send one message in a new home under `folder`, and return its path to the model."""
    record = folder / f"{through}-stack.json"
    home = folder / f"{through}-home"
    home.mkdir()
    with running_server(folder, ["Hello."] * 4) as port:
        (home / "retinue.json").write_text(json.dumps(_configuration(port)))
        if through == "terminal":
            subprocess.run(
                [sys.executable, "-c", _PROGRAM, "agent", "-m", "hello", "--home", str(home)],
                env=_environment(home, record),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
                timeout=PATIENCE_SECONDS,
            )
        else:
            with _gateway(home, record) as port_of_gateway:
                _post_message(home, port_of_gateway)
                _wait_for(record.exists)
        return MessagePath(tuple(Step(file, function) for file, function in json.loads(record.read_text())))


def _configuration(port: int) -> dict[str, Any]:
    model = {"id": "test-model", "contextWindow": 100_000}
    url = f"http://127.0.0.1:{port}/v1"
    provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "fake-key-0123456789", "models": [model]}
    return {"models": {"providers": {"test": provider}}, "agents": {"defaults": {"model": "test/test-model"}}}


def _environment(home: Path, record: Path) -> dict[str, str]:
    return {"HOME": str(home.parent), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", RECORDING: str(record)}


@contextmanager
def _gateway(home: Path, record: Path) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    arguments: Sequence[str] = ("gateway", "run", "--port", str(port), "--home", str(home))
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *arguments],
        env=_environment(home, record),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        process.kill()
        process.wait()


def _post_message(home: Path, port: int) -> None:
    """Send a message to the gateway over HTTP as soon as it listens."""
    import httpx2

    token = home / "credentials" / "gateway.token"
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}") as client:

        def is_ready() -> bool:
            try:
                return token.exists() and client.get("/readyz").status_code == 200
            except httpx2.TransportError:
                return False

        _wait_for(is_ready)
        headers = {"Authorization": f"Bearer {token.read_text().strip()}"}
        body = {"message": "hello", "idempotencyKey": "path"}
        client.post("/rpc/agent", json=body, headers=headers).raise_for_status()


def _wait_for(reached: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError("the message did not reach the model in time")
        time.sleep(0.01)
