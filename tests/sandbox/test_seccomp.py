"""The system call filter, run by a small interpreter of our own and compared with the kernel's headers."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from retinue.sandbox.seccomp import (
    COMMON,
    IN_NAMESPACES,
    LAST_KNOWN,
    MACHINES,
    NO_SIGNALS,
    NUMBERS,
    ON_THE_HOST,
    Machine,
    Rule,
    build_filter,
    number_of,
)

X86, ARM = MACHINES["x86_64"], MACHINES["aarch64"]
ALLOW, KILL, IGNORE = "allow", "kill", "ignore"


def judge(rules: tuple[Rule, ...], machine: Machine, number: int, *arguments: int, audit: int | None = None) -> str:
    """The filter's verdict on one call: `allow`, `kill`, `ignore`, or the name of the error."""
    record = struct.pack("=iIQ6Q", number, machine.audit if audit is None else audit, 0, *(*arguments, *[0] * 6)[:6])
    steps = list(struct.iter_unpack("=HBBI", build_filter(rules, machine)))
    at, held = 0, 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("=I", record, value)
            case 0x15:
                at += yes if held == value else no
            case 0x25:
                at += yes if held > value else no
            case 0x45:
                at += yes if held & value else no
            case 0x06 if value == 0x7FFF0000:
                return ALLOW
            case 0x06 if value == 0x80000000:
                return KILL
            case 0x06 if value == 0x00050000:
                return IGNORE
            case 0x06:
                return errno.errorcode[value & 0xFFFF]
            case _:
                raise AssertionError(f"unknown step {code:#x}")


def call(name: str, machine: Machine = X86) -> int:
    number = number_of(name, machine)
    assert number is not None
    return number


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        *((name, "ENOSYS") for name in ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3")),
        *((name, "EPERM") for name in ("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp")),
        *((name, "EPERM") for name in ("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "move_mount")),
        *((name, "EPERM") for name in ("open_tree", "fsopen", "fsmount", "fsconfig", "fspick", "mount_setattr")),
        *((name, "EPERM") for name in ("keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd")),
        *((name, "EPERM") for name in ("kexec_load", "kexec_file_load", "init_module", "finit_module", "reboot")),
        *((name, "EPERM") for name in ("open_by_handle_at", "sethostname", "clock_settime", "settimeofday", "syslog")),
    ],
)
def test_dangerous_calls_are_refused_everywhere(name: str, verdict: str, machine: Machine) -> None:
    for rules in (IN_NAMESPACES, ON_THE_HOST):
        assert judge(rules, machine, call(name, machine)) == verdict


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_a_new_process_is_allowed_and_a_new_namespace_is_not(machine: Machine) -> None:
    clone = call("clone", machine)
    assert judge(COMMON, machine, clone, 17) == ALLOW
    assert judge(COMMON, machine, clone, 0x003D0F00) == ALLOW, "a thread"
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert judge(COMMON, machine, clone, flag | 17) == "EPERM"


def test_nothing_types_into_a_terminal() -> None:
    assert judge(COMMON, X86, call("ioctl"), 0, 0x5412) == "EPERM"
    assert judge(COMMON, X86, call("ioctl"), 0, 0x541C) == "EPERM"
    assert judge(COMMON, X86, call("ioctl"), 0, 0xDEAD_0000_5412) == "EPERM", "the kernel looks at the lower half"
    assert judge(COMMON, X86, call("ioctl"), 0, 0x5401) == ALLOW


@pytest.mark.parametrize(("family", "verdict"), [(1, ALLOW), (2, ALLOW), (10, ALLOW), (16, "EAFNOSUPPORT")])
def test_only_plain_sockets_exist_in_a_namespace(family: int, verdict: str) -> None:
    assert judge(IN_NAMESPACES, X86, call("socket"), family, 1) == verdict
    assert judge(ON_THE_HOST, X86, call("socket"), family, 1) == "EACCES"


def test_a_personality_may_be_asked_for_and_not_changed() -> None:
    assert judge(COMMON, X86, call("personality"), 0xFFFFFFFF) == ALLOW
    assert judge(COMMON, X86, call("personality"), 0x0040000) == "EPERM"


def test_other_processors_are_killed_and_other_tables_do_not_exist() -> None:
    assert judge(COMMON, X86, 20, audit=0x40000003) == KILL, "a 32-bit call"
    assert judge(COMMON, X86, call("ptrace") | 0x40000000) == "ENOSYS", "the x32 table"
    assert judge(COMMON, X86, LAST_KNOWN) == ALLOW
    assert judge(COMMON, X86, LAST_KNOWN + 1) == "ENOSYS"


def test_on_the_host_attributes_of_files_stay() -> None:
    assert judge(ON_THE_HOST, X86, call("chmod")) == IGNORE
    assert judge(IN_NAMESPACES, X86, call("chmod")) == ALLOW
    assert judge(ON_THE_HOST, X86, call("utimensat"), 3, 0) == ALLOW, "of a file that is open"
    assert judge(ON_THE_HOST, X86, call("utimensat"), 3, 0x7FFF_0000_0000) == "EPERM", "of a file by its path"
    assert judge(ON_THE_HOST, X86, call("utimensat"), 3, 0x1000) == "EPERM"


def test_on_the_host_a_program_changes_only_itself() -> None:
    assert judge(ON_THE_HOST, X86, call("prlimit64"), 0) == ALLOW
    assert judge(ON_THE_HOST, X86, call("prlimit64"), 4711) == "EPERM"
    assert judge(ON_THE_HOST, X86, call("kill"), 4711, 9) == ALLOW, "landlock decides"
    assert judge((*ON_THE_HOST, *NO_SIGNALS), X86, call("kill"), 4711, 9) == "EPERM", "where landlock does not"


def test_the_filter_fits_into_the_kernel() -> None:
    assert len(build_filter((*ON_THE_HOST, *NO_SIGNALS), X86)) // 8 < 4096


HEADERS = {
    X86: ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "__NR_"),
    ARM: ("/usr/include/asm-generic/unistd.h", "__NR(?:3264)?_"),
}


@pytest.mark.parametrize("machine", HEADERS, ids=lambda machine: machine.name)
def test_the_numbers_are_the_kernels(machine: Machine) -> None:
    path, prefix = HEADERS[machine]
    if not Path(path).is_file():
        pytest.skip(f"{path} is not installed")
    found = dict(re.findall(rf"#define {prefix}(\w+) (\d+)", Path(path).read_text()))
    assert len(found) > 250
    compared = {name: number_of(name, machine) for name in NUMBERS if name in found}
    assert len(compared) > 80
    assert compared == {name: int(found[name]) for name in compared}
