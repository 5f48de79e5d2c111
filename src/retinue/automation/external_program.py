"""Run the owner's programs: JSON on standard input, output captured.

Each runs as a separate process with only the given environment and a time limit. A transform converts a webhook request
to a message for an agent. A Python file runs in a separate isolated interpreter; any other file must be executable.
Both get the request as JSON and print JSON. A file is run only if no other user can write it.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
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
TRANSFORM_SECONDS = 10.0
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_RUNNER = """
import json, os, runpy, sys
say = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
value = runpy.run_path(sys.argv[1])[sys.argv[2]](json.load(sys.stdin))
json.dump(value, say)
say.close()
"""
"""Runs a function of a file; output of the function is redirected to standard error."""


class ProgramFailed(RetinueError):
    """A program did not start, timed out or ended with an error; the message says which.

    `code` is its exit code, None if it did not end by itself; `output` is what it printed as its reason.
    """

    def __init__(self, message: str, *, code: int | None = None, output: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.output = output


class TransformError(RetinueError):
    """A transform cannot be used or its output is invalid; the message says why."""


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
        message = f"{program.name} ended with code {process.returncode}: {reason}"
        raise ProgramFailed(message, code=process.returncode, output=reason)
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


def find_transform(folder: Path, module: str, home: Path) -> Path:
    """Return the file of a transform; raise `TransformError` if another user could have written it."""
    place, within = Path(os.path.realpath(folder)), Path(os.path.realpath(home))
    if not place.is_relative_to(within):
        raise TransformError(f"hooks.transformsDir is {folder}, outside of {home}. It must be in the home.")
    path = Path(os.path.realpath(place / module))
    if not path.is_relative_to(place) or path == place:
        raise TransformError(f"The transform '{module}' is outside of {folder}.")
    for each in (path, *path.parents):
        _require_own(each, is_file=each == path)
        if each == place:
            return path
    raise AssertionError("the folder is a parent of the file")


def _require_own(path: Path, *, is_file: bool) -> None:
    try:
        found = path.stat()
    except OSError as error:
        raise TransformError(f"The transform {path} cannot be used: {error.strerror}.") from error
    if is_file and not stat.S_ISREG(found.st_mode):
        raise TransformError(f"The transform {path} is not a file.")
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MAY_WRITE:
        raise TransformError(f"Other users could have written {path}. It must belong to you; run `chmod go-w {path}`.")


async def transform(path: Path, export: str, request: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    """Run a transform on a request and return its output; raise `RetinueError` if it fails or prints no JSON."""
    own = [sys.executable, "-I", "-c", _RUNNER, str(path), export] if path.suffix == ".py" else [str(path)]
    program = ExternalProgram(f"The transform {path.name}", own, path.parent, environment, TRANSFORM_SECONDS)
    output = await run_json_program(program, request)
    try:
        return json.loads(output)
    except (ValueError, RecursionError):
        raise TransformError(f"The transform {path.name} did not print JSON.") from None
