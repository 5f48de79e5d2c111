"""The system call filter of sandboxed programs, as BPF bytecode.

The kernel runs a small program for each call: it loads words of a record (call number, architecture, arguments) and
returns a verdict. The filter refuses calls that sandboxed programs do not need and calls that were used in sandbox
escapes; calls newer than the filter return ENOSYS.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable
from typing import assert_never

from msgspec import Struct

from retinue.sandbox.syscalls import LAST_KNOWN, MACHINES, Machine, number_of

_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16

_NEW_NAMESPACES = 0x7E020000
"""Every `CLONE_NEW…` flag that `clone` takes: mount, cgroup, uts, ipc, user, pid and network."""
_TYPE_INTO_TERMINAL = (0x5412, 0x541C)
"""`TIOCSTI` and `TIOCLINUX`, which put characters into a terminal's input."""
_QUERY_PERSONALITY = (0, 0xFFFFFFFF)
_UNIX, _INET, _INET6 = 1, 2, 10
_NO_ERROR = 0
"""The error number of a call that does nothing and reports success."""


class Refuse(Struct, frozen=True):
    """The call fails with an error, regardless of its arguments."""

    call: str
    error: int = errno.EPERM


class RefuseFlags(Struct, frozen=True):
    """The call fails if any bit of `mask` is set in an argument."""

    call: str
    argument: int
    mask: int


class RefuseValues(Struct, frozen=True):
    """The call fails if the lower half of an argument is one of these values."""

    call: str
    argument: int
    values: tuple[int, ...]


class OnlyValues(Struct, frozen=True):
    """The call fails unless the lower half of an argument is one of these values."""

    call: str
    argument: int
    values: tuple[int, ...]
    error: int = errno.EPERM


class OnlyNull(Struct, frozen=True):
    """The call fails unless an argument is a null pointer."""

    call: str
    argument: int


Rule = Refuse | RefuseFlags | RefuseValues | OnlyValues | OnlyNull


def _refuse(names: str, error: int = errno.EPERM) -> tuple[Rule, ...]:
    return tuple(Refuse(name, error) for name in names.split())


COMMON: tuple[Rule, ...] = (
    # other processes
    *_refuse("ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd move_pages migrate_pages"),
    # namespaces and mounts
    *_refuse("unshare setns mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick"),
    *_refuse("mount_setattr open_by_handle_at name_to_handle_at quotactl quotactl_fd"),
    RefuseFlags("clone", 0, _NEW_NAMESPACES),
    # large kernel interfaces used in escapes; if a call is missing, programs fall back to older ones
    *_refuse("clone3 io_uring_setup io_uring_enter io_uring_register", errno.ENOSYS),
    *_refuse("keyctl add_key request_key bpf perf_event_open userfaultfd memfd_secret fanotify_init fanotify_mark"),
    # the machine
    *_refuse("kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct syslog"),
    *_refuse("sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex iopl ioperm vhangup"),
    # obsolete calls
    *_refuse("modify_ldt uselib ustat sysfs _sysctl create_module query_module get_kernel_syms nfsservctl"),
    Refuse("lookup_dcookie"),
    OnlyValues("personality", 0, _QUERY_PERSONALITY),
    RefuseValues("ioctl", 1, _TYPE_INTO_TERMINAL),
)
"""The rules for all sandboxed programs."""

IN_NAMESPACES: tuple[Rule, ...] = (*COMMON, OnlyValues("socket", 0, (_UNIX, _INET, _INET6), errno.EAFNOSUPPORT))
"""For a program in its own namespaces: its sockets reach nothing outside, and need no other families."""

ON_THE_HOST: tuple[Rule, ...] = (
    *COMMON,
    # without a network namespace any socket could reach the host; connected socket pairs remain allowed
    Refuse("socket", errno.EACCES),
    # landlock does not control file attributes or inotify watches; changing a mode succeeds without effect,
    # because common programs such as git fail if they cannot set one
    *_refuse("chmod fchmod fchmodat fchmodat2", _NO_ERROR),
    *_refuse("chown lchown fchown fchownat utime utimes futimesat inotify_add_watch"),
    *_refuse("setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr"),
    OnlyNull("utimensat", 1),
    # System V and POSIX IPC, which all processes of a user share
    *_refuse("shmget shmat shmctl msgget msgsnd msgrcv msgctl semget semop semctl semtimedop mq_open mq_unlink"),
    # other processes of the same user
    OnlyValues("prlimit64", 0, (0,)),
    OnlyValues("setpriority", 1, (0,)),
    OnlyValues("ioprio_set", 1, (0,)),
    *(OnlyValues(f"sched_set{what}", 0, (0,)) for what in ("scheduler", "attr", "param", "affinity")),
)
"""For a program that shares the host's namespaces."""

NO_SIGNALS: tuple[Rule, ...] = _refuse(
    "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal pidfd_open"
)
"""For a program on the host if landlock cannot restrict its signals."""


def this_machine() -> Machine | None:
    """Return the machine's architecture; None if the filter does not support it."""
    return MACHINES.get(platform.machine())


def build_filter(rules: Iterable[Rule], machine: Machine) -> bytes:
    """Return the filter as the kernel reads it: refuses what the rules say, and every call newer than the rules."""
    program = [
        _step(_LOAD, _ARCH_AT),
        _step(_EQUAL, machine.audit, yes=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER_AT),
        # also the x32 table of x86_64, whose numbers have bit 30 set
        _step(_GREATER, LAST_KNOWN, no=1),
        _fail(errno.ENOSYS),
    ]
    for rule in rules:
        number = number_of(rule.call, machine)
        if number is not None:
            program += _block(number, _compile_rule(rule))
    program.append(_step(_RETURN, _ALLOW))
    return b"".join(program)


def _block(number: int, judged: list[bytes]) -> list[bytes]:
    return [_step(_EQUAL, number, no=len(judged)), *judged]


def _compile_rule(rule: Rule) -> list[bytes]:
    """Return the instructions of a rule; they always end with a verdict."""
    match rule:
        case Refuse(_, error):
            return [_fail(error)]
        case RefuseFlags(_, argument, mask):
            return [_load_argument(argument), _step(_ANY_BIT, mask, no=1), _fail(errno.EPERM), _step(_RETURN, _ALLOW)]
        case RefuseValues(_, argument, values):
            return [*_compare(argument, values), _step(_RETURN, _ALLOW), _fail(errno.EPERM)]
        case OnlyValues(_, argument, values, error):
            return [*_compare(argument, values), _fail(error), _step(_RETURN, _ALLOW)]
        case OnlyNull(_, argument):
            return [
                _load_argument(argument),
                _step(_EQUAL, 0, no=2),
                _load_argument(argument, upper=True),
                _step(_EQUAL, 0, yes=1),
                _fail(errno.EPERM),
                _step(_RETURN, _ALLOW),
            ]
        case unknown:
            assert_never(unknown)


def _compare(argument: int, values: tuple[int, ...]) -> list[bytes]:
    """Return instructions that skip one step if the argument is one of the values."""
    last = len(values) - 1
    return [
        _load_argument(argument),
        *(_step(_EQUAL, value, yes=last - position + 1) for position, value in enumerate(values)),
    ]


def _load_argument(argument: int, *, upper: bool = False) -> bytes:
    """Return the instruction that loads an argument; both architectures store the lower half first."""
    return _step(_LOAD, _ARGUMENTS_AT + 8 * argument + (4 if upper else 0))


def _fail(error: int) -> bytes:
    return _step(_RETURN, _ERROR | error)


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
