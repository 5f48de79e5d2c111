"""Run the owner's programs: JSON on standard input, output captured.

Each runs as a separate process with only the given environment and a time limit.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process
from msgspec import Struct

from retinue.core.errors import RetinueError

MAX_OUTPUT_BYTES = 64 * 1024


class ProgramFailed(RetinueError):
    """A program did not start, timed out or ended with an error; the message says which."""


class ExternalProgram(Struct, frozen=True):
    """A program to run."""

    name: str
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    seconds: float


async def run_json_program(program: ExternalProgram, data: Mapping[str, Any]) -> str:
    """Run a program with `data` as JSON on its standard input; return its output; raise `ProgramFailed` on failure."""
    try:
        process = await anyio.open_process(
            list(program.command),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=program.folder,
            env=dict(program.environment),
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramFailed(f"{program.name} cannot be started: {error.strerror or error}.") from error
    try:
        with anyio.fail_after(program.seconds):
            async with process:
                output, errors = await _communicate(process, json.dumps(data, ensure_ascii=False).encode())
    except TimeoutError:
        raise ProgramFailed(f"{program.name} took longer than {program.seconds:g} s and was stopped.") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        reason = (errors or output).decode("utf-8", "replace").strip()[-500:]
        raise ProgramFailed(f"{program.name} ended with code {process.returncode}: {reason}")
    return output.decode("utf-8", "replace")


async def _communicate(process: Process, data: bytes) -> tuple[bytes, bytes]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, process.stdout, output)
        tasks.start_soon(_read, process.stderr, errors)
        with suppress(anyio.BrokenResourceError, ConnectionError):
            await process.stdin.send(data)
        await process.stdin.aclose()
    return bytes(output), bytes(errors)


async def _read(stream: ByteReceiveStream, into: bytearray) -> None:
    """Read to the end, so that a program with much output is not blocked; only the beginning is kept."""
    async for piece in stream:
        into += piece[: MAX_OUTPUT_BYTES - len(into)]
