"""Reaching other processes."""

from __future__ import annotations

import ctypes
import os
import resource
import struct

from tests.sandbox.probes.attempts import LIBC, Facts, attempt, call, did, probe


@probe
def kill_the_host(facts: Facts) -> str | None:
    return attempt(
        did("signalled", os.kill, facts["pid"], 0),
        lambda: call(200, 130, facts["pid"], 0) or "signalled a thread",
        lambda: call(129, 138, facts["pid"], 0, bytes(128)) or "queued",
        lambda: call(424, 424, os.pidfd_open(facts["pid"]), 0, None, 0) or "signalled by descriptor",
    )


@probe
def trace_the_host(facts: Facts) -> str | None:
    return attempt(
        lambda: call(101, 117, 16, facts["pid"], 0, 0) or "attached",
        lambda: call(101, 117, 0x4206, facts["pid"], 0, 0) or "seized",
        lambda: call(101, 117, 16, os.getppid(), 0, 0) or "attached to the parent",
    )


@probe
def trace_itself(facts: Facts) -> str | None:
    return attempt(lambda: call(101, 117, 0, 0, 0, 0) or "traced")


@probe
def read_the_hosts_memory(facts: Facts) -> str | None:
    place = ctypes.create_string_buffer(8)
    vector = struct.pack("@PN", ctypes.addressof(place), 8)
    return attempt(
        lambda: call(310, 270, facts["pid"], vector, 1, vector, 1, 0),
        lambda: call(310, 270, os.getpid(), vector, 1, vector, 1, 0),
        lambda: call(311, 271, os.getpid(), vector, 1, vector, 1, 0),
    )


@probe
def take_a_descriptor_from_the_host(facts: Facts) -> str | None:
    return attempt(
        lambda: call(438, 438, os.pidfd_open(facts["pid"]), 0, 0),
        lambda: call(438, 438, os.pidfd_open(os.getpid()), 0, 0),
    )


@probe
def change_the_hosts_limits(facts: Facts) -> str | None:
    return attempt(
        lambda: resource.prlimit(facts["pid"], resource.RLIMIT_NOFILE),
        did("slowed down", os.setpriority, os.PRIO_PROCESS, facts["pid"], 19),
        did("pinned", os.sched_setaffinity, facts["pid"], {0}),
    )


@probe
def share_memory_with_the_host(facts: Facts) -> str | None:
    def attach() -> str:
        segment = call(29, 194, facts["shm"], 0, 0o600)
        LIBC.shmat.restype = ctypes.c_void_p
        place = LIBC.shmat(segment, None, 0)
        if place in (None, ctypes.c_void_p(-1).value):
            raise OSError("not attached")
        return ctypes.string_at(place, 20).decode("latin-1")

    return attempt(attach)
