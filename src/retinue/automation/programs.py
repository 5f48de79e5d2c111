"""Programs of the owner's that are told something as JSON and may answer with JSON.

Each runs as a process of its own, with the variables it is given and no more, for a while and not longer.
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

MOST_BYTES = 64 * 1024


class ProgramFailed(RetinueError):
    """A program did not start, took too long or ended with an error; the message says which."""


class Program(Struct, frozen=True):
    """What to run, and where."""

    name: str
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    seconds: float


async def ask_program(program: Program, told: Mapping[str, Any]) -> str:
    """What a program prints when it is told something; raises `ProgramFailed` where it does not end well."""
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
                said, complaint = await _talk(process, json.dumps(told, ensure_ascii=False).encode())
    except TimeoutError:
        raise ProgramFailed(f"{program.name} took longer than {program.seconds:g} s and was ended.") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        reason = (complaint or said).decode("utf-8", "replace").strip()[-500:]
        raise ProgramFailed(f"{program.name} ended with code {process.returncode}: {reason}")
    return said.decode("utf-8", "replace")


async def _talk(process: Process, told: bytes) -> tuple[bytes, bytes]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    said, complaint = bytearray(), bytearray()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, process.stdout, said)
        tasks.start_soon(_read, process.stderr, complaint)
        with suppress(anyio.BrokenResourceError, ConnectionError):
            await process.stdin.send(told)
        await process.stdin.aclose()
    return bytes(said), bytes(complaint)


async def _read(stream: ByteReceiveStream, into: bytearray) -> None:
    """Read to the end, so that a program that says much is not stopped; only the beginning is kept."""
    async for piece in stream:
        into += piece[: MOST_BYTES - len(into)]
