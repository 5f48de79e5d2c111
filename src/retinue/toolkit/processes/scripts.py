"""The files whose code a command would run: agreed to with the command, so they must not change before it runs."""

from __future__ import annotations

import hashlib
import os
import stat

from retinue.storage.descriptors import read_up_to
from retinue.tools.shell.analysis import AnalysedCommand, NotAnalysable
from retinue.tools.shell.code_execution_flags import find_script
from retinue.tools.shell.wrappers import ReviewRequired, unwrap

_MAX_SCRIPT_BYTES = 64_000_000
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def hash_scripts(reading: AnalysedCommand | NotAnalysable, folder: int) -> dict[str, str]:
    """The scripts that a command names, each with a hash of what it says; the folder it would run in is open.

    Only files that can be read whole count: a program that is missing, or larger, says nothing here.
    """
    if isinstance(reading, NotAnalysable):
        return {}
    inner = (argv if isinstance(layers := unwrap(argv), ReviewRequired) else layers[-1] for argv in reading.commands)
    named = (find_script(argv) for argv in inner)
    hashed = {name: _hash(name, folder) for name in named if name is not None}
    return {name: digest for name, digest in hashed.items() if digest is not None}


def _hash(name: str, folder: int) -> str | None:
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_SCRIPT_BYTES:
            return None
        return hashlib.sha256(read_up_to(descriptor, _MAX_SCRIPT_BYTES, found.st_size)).hexdigest()
    except OSError:
        return None
    finally:
        os.close(descriptor)
