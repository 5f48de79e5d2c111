"""Finding what was left lying around."""

from __future__ import annotations

import contextlib
import os
import socket

from tests.sandbox.probes.attempts import Facts, probe


@probe
def find_open_descriptors(facts: Facts) -> str | None:
    found = []
    for number in range(3, 1024):
        with contextlib.suppress(OSError):
            os.fstat(number)
            found.append(number)
    return f"descriptors {found}" if found else None


@probe
def find_secrets_in_the_environment(facts: Facts) -> str | None:
    return next((name for name, value in os.environ.items() if facts["marker"] in value or "TOKEN" in name), None)


@probe
def receive_descriptors(facts: Facts) -> str | None:
    """Standard streams are pipes or the null device, never a socket that descriptors could come through."""
    for number in (0, 1, 2):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as stream:
            ancillary = stream.recvmsg(1, 64, socket.MSG_DONTWAIT)
            return f"{number} is a socket: {ancillary}"
    return None
