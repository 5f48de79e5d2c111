"""Reaching the kernel."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import pty
import signal
import socket
import struct
import time

from tests.sandbox.probes.attempts import LIBC, X86, Facts, attempt, call, did, probe


@probe
def make_namespaces(facts: Facts) -> str | None:
    flags = (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x08000000, 0x04000000, 0x02000000)
    return attempt(*(lambda flag=flag: call(272, 97, flag) or hex(flag) for flag in flags))


@probe
def clone_into_a_user_namespace(facts: Facts) -> str | None:
    def clone() -> str:
        child = call(56, 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        return f"child {child}"

    def clone3() -> str:
        arguments = ctypes.create_string_buffer(struct.pack("=QQQQQQQQ", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0))
        child = call(435, 435, arguments, 64)
        if child == 0:
            os._exit(0)
        return f"child {child}"

    return attempt(clone, clone3)


@probe
def enter_namespaces(facts: Facts) -> str | None:
    def enter(path: str) -> str:
        call(308, 268, os.open(path, os.O_RDONLY), 0)
        return path

    paths = [
        f"/proc/{pid}/ns/{kind}" for pid in (facts["pid"], 1, "self") for kind in ("mnt", "net", "pid", "user", "uts")
    ]
    return attempt(*(lambda path=path: enter(path) for path in paths))


@probe
def mount_something(facts: Facts) -> str | None:
    return attempt(
        lambda: call(165, 40, b"none", b"/tmp", b"tmpfs", 0, None) or "mounted",
        lambda: call(165, 40, facts["home"].encode(), b"/tmp", None, 4096, None) or "bound",
        lambda: call(165, 40, None, b"/usr", None, 32 | 4096, None) or "remounted writable",
        lambda: call(166, 39, b"/tmp", 2) or "unmounted",
        lambda: call(428, 428, -100, b"/usr", 1) or "open_tree",
        lambda: call(430, 430, b"tmpfs", 0) or "fsopen",
        lambda: call(442, 442, -100, b"/usr", 0, bytes(32), 32) or "mount_setattr",
    )


@probe
def change_the_root(facts: Facts) -> str | None:
    return attempt(
        did("chroot", os.chroot, "/tmp"),
        lambda: call(155, 41, b"/tmp", b"/tmp") or "pivot_root",
    )


@probe
def use_io_uring(facts: Facts) -> str | None:
    return attempt(
        lambda: call(425, 425, 4, ctypes.create_string_buffer(120)),
        lambda: call(426, 426, 0, 0, 0, 0, None, 0),
        lambda: call(427, 427, -1, 0, None, 0),
    )


@probe
def use_the_keyring(facts: Facts) -> str | None:
    return attempt(
        lambda: call(248, 217, b"user", b"probe", b"x", 1, -4),
        lambda: call(250, 219, 0, -4, 1),
        lambda: call(249, 218, b"user", b"probe", None, -4),
    )


@probe
def load_a_kernel_program(facts: Facts) -> str | None:
    return attempt(
        lambda: call(321, 280, 0, ctypes.create_string_buffer(struct.pack("=IIII", 2, 4, 4, 1) + bytes(112)), 128)
    )


@probe
def measure_the_machine(facts: Facts) -> str | None:
    attributes = ctypes.create_string_buffer(struct.pack("=II", 1, 112) + bytes(104))
    return attempt(lambda: call(298, 241, attributes, 0, -1, -1, 0))


@probe
def handle_page_faults(facts: Facts) -> str | None:
    return attempt(lambda: call(323, 282, 1), lambda: call(323, 282, 0))


@probe
def load_a_module(facts: Facts) -> str | None:
    return attempt(
        lambda: call(175, 105, b"x", 1, b"") or "init",
        lambda: call(313, 273, 0, b"", 0) or "finit",
        lambda: call(176, 106, b"x", 0) or "delete",
    )


@probe
def load_another_kernel(facts: Facts) -> str | None:
    return attempt(
        lambda: call(246, 104, 0, 0, None, 0) or "kexec",
        lambda: call(320, 294, -1, -1, 0, None, 0) or "kexec file",
        lambda: call(169, 142, 0xFEE1DEAD, 672274793, 0, None) or "reboot",
    )


@probe
def rename_the_machine(facts: Facts) -> str | None:
    return attempt(did("hostname", socket.sethostname, "probe"), lambda: call(171, 162, b"probe", 5) or "domain")


@probe
def set_the_clock(facts: Facts) -> str | None:
    now = time.time()
    return attempt(
        did("clock", time.clock_settime, time.CLOCK_REALTIME, now),
        lambda: call(164, 170, struct.pack("@ll", int(now), 0), None) or "settimeofday",
    )


@probe
def become_somebody_else(facts: Facts) -> str | None:
    return attempt(
        did("setuid", os.setuid, facts["other_uid"]),
        did("setgroups", os.setgroups, [0]),
        did("setresuid", os.setresuid, facts["other_uid"], facts["other_uid"], facts["other_uid"]),
    )


@probe
def have_capabilities(facts: Facts) -> str | None:
    data = ctypes.create_string_buffer(24)
    LIBC.capget(struct.pack("=Ii", 0x20080522, 0), data)
    held = [hex(word) for word in struct.unpack("=6I", data.raw[:24]) if word]
    return ", ".join(held) or None


@probe
def gain_privileges_by_a_program(facts: Facts) -> str | None:
    """Set-user-id programs and file capabilities do nothing for a process that may gain no privileges."""
    return None if LIBC.prctl(39, 0, 0, 0, 0) == 1 else "new privileges are possible"


@probe
def type_into_the_terminal(facts: Facts) -> str | None:
    def push(descriptor: int) -> str:
        fcntl.ioctl(descriptor, 0x5412, b"x")
        return "typed"

    def own_terminal() -> str:
        _, terminal = pty.openpty()
        return push(terminal)

    return attempt(lambda: push(0), lambda: push(1), own_terminal, lambda: push(os.open("/dev/tty", os.O_RDWR)))


@probe
def have_a_controlling_terminal(facts: Facts) -> str | None:
    return attempt(lambda: os.open("/dev/tty", os.O_RDWR), lambda: os.ctermid() and os.tcgetpgrp(0))


@probe
def change_the_personality(facts: Facts) -> str | None:
    return attempt(lambda: call(135, 92, 0x0040000) and "no randomisation", lambda: call(135, 92, 0x0008) and "32 bits")


@probe
def use_the_other_numbers(facts: Facts) -> str | None:
    """The second table of calls that x86_64 has, where a filter may have forgotten to look."""
    return attempt(
        lambda: call(0x40000000 + 39, -1), lambda: call(0x40000000 + 165, -1, b"none", b"/tmp", b"tmpfs", 0, None)
    )


@probe
def call_as_another_processor(facts: Facts) -> str | None:
    """`int 0x80` enters the kernel as a 32-bit program would."""
    if not X86:
        return None
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3"))
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    result = function()
    return f"getpid gave {result}" if result > 0 else None


@probe
def use_calls_from_the_future(facts: Facts) -> str | None:
    return attempt(*(lambda number=number: call(number, number, -1, 0, 0, 0, 0, 0) for number in range(463, 480)))
