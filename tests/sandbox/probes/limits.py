"""Using up the machine."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

from tests.sandbox.probes.attempts import Facts, attempt, did, probe


@probe
def start_too_many_processes(facts: Facts) -> str | None:
    started = 0
    for _ in range(facts["processes"] * 4):
        try:
            if os.fork() == 0:
                time.sleep(30)
                os._exit(0)
        except OSError:
            break
        started += 1
    time.sleep(2)  # where the supervisor counts, it counts now and then
    return f"{started} processes" if started > facts["processes"] else None


@probe
def use_too_much_memory(facts: Facts) -> str | None:
    held: list[bytearray] = []
    try:
        while len(held) < facts["memory"] // 2**24 + 8:
            held += [bytearray(2**24)]
    except MemoryError:
        return None
    return f"{len(held) * 16} MB"


@probe
def write_too_much(facts: Facts) -> str | None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    chunk = bytes(2**20)
    with open("large", "wb", buffering=0) as stream:  # noqa: PTH123
        try:
            for _ in range(facts["file_size"] // 2**20 + 2):
                stream.write(chunk)
        except OSError:
            pass
        size = stream.tell()
    Path("large").unlink()
    return f"{size} bytes" if size > facts["file_size"] else None


@probe
def raise_its_own_limits(facts: Facts) -> str | None:
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE)
    everything = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    return attempt(*(did(str(kind), resource.setrlimit, kind, everything) for kind in kinds))


@probe
def leave_a_core_dump(facts: Facts) -> str | None:
    return None if resource.getrlimit(resource.RLIMIT_CORE) == (0, 0) else "core dumps are written"
