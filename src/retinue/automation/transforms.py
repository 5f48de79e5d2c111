"""Transforms: the owner's code that converts a webhook request to a message for an agent.

It never runs inside the Retinue process. A Python file runs in a separate isolated interpreter; any other file must be
executable. Both get the request as JSON and print JSON. A file is run only if no other user can write it.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.automation.external_program import ExternalProgram, run_json_program
from retinue.core.errors import RetinueError

SECONDS = 10.0
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


class TransformError(RetinueError):
    """A transform cannot be used or its output is invalid; the message says why."""


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
    program = ExternalProgram(f"The transform {path.name}", own, path.parent, environment, SECONDS)
    output = await run_json_program(program, request)
    try:
        return json.loads(output)
    except (ValueError, RecursionError):
        raise TransformError(f"The transform {path.name} did not print JSON.") from None
