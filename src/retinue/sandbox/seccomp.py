"""The filter that decides which system calls a confined program may make, as the bytes that the kernel loads.

The kernel runs a small program for each call: it loads words of a record (the call's number, the processor's kind, the
arguments) and returns a verdict. The filter refuses what nobody needs inside a sandbox and what has let others out of
theirs; calls that are newer than the filter do not exist.
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
_NOTHING_WRONG = 0
"""The error of a call that does nothing and says that it worked."""


class Refuse(Struct, frozen=True):
    """The call fails with an error, whatever its arguments."""

    call: str
    error: int = errno.EPERM


class RefuseFlags(Struct, frozen=True):
    """The call fails where any bit of `mask` is set in an argument."""

    call: str
    argument: int
    mask: int


class RefuseValues(Struct, frozen=True):
    """The call fails where the lower half of an argument is one of these."""

    call: str
    argument: int
    values: tuple[int, ...]


class OnlyValues(Struct, frozen=True):
    """The call fails unless the lower half of an argument is one of these."""

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
    # large parts of the kernel that have let programs out; a missing call makes programs fall back to older ones
    *_refuse("clone3 io_uring_setup io_uring_enter io_uring_register", errno.ENOSYS),
    *_refuse("keyctl add_key request_key bpf perf_event_open userfaultfd memfd_secret fanotify_init fanotify_mark"),
    # the machine
    *_refuse("kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct syslog"),
    *_refuse("sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex iopl ioperm vhangup"),
    # what is left of long ago
    *_refuse("modify_ldt uselib ustat sysfs _sysctl create_module query_module get_kernel_syms nfsservctl"),
    Refuse("lookup_dcookie"),
    OnlyValues("personality", 0, _QUERY_PERSONALITY),
    RefuseValues("ioctl", 1, _TYPE_INTO_TERMINAL),
)
"""What no confined program may do."""

IN_NAMESPACES: tuple[Rule, ...] = (*COMMON, OnlyValues("socket", 0, (_UNIX, _INET, _INET6), errno.EAFNOSUPPORT))
"""For a program with namespaces of its own: its sockets reach nothing but itself, and need no other families."""

ON_THE_HOST: tuple[Rule, ...] = (
    *COMMON,
    # without a network of its own a socket of any kind leads to the host; pairs of connected ones stay possible
    Refuse("socket", errno.EACCES),
    # landlock does not see changes of a file's attributes, nor who watches a folder; modes seem to change, because
    # programs as common as git give up where they cannot set one
    *_refuse("chmod fchmod fchmodat fchmodat2", _NOTHING_WRONG),
    *_refuse("chown lchown fchown fchownat utime utimes futimesat inotify_add_watch"),
    *_refuse("setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr"),
    OnlyNull("utimensat", 1),
    # the memory and queues that all processes of a user share
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
"""For a program on the host whose signals nothing else confines."""


def this_machine() -> Machine | None:
    """The processor's kind; None for one that the filter does not know."""
    return MACHINES.get(platform.machine())


def build_filter(rules: Iterable[Rule], machine: Machine) -> bytes:
    """The filter as the kernel reads it: refuses what the rules say, and every call that is newer than they are."""
    program = [
        _step(_LOAD, _ARCH_AT),
        _step(_EQUAL, machine.audit, yes=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER_AT),
        # also the second table of numbers that x86_64 has, whose bit 30 is set
        _step(_GREATER, LAST_KNOWN, no=1),
        _fail(errno.ENOSYS),
    ]
    for rule in rules:
        number = number_of(rule.call, machine)
        if number is not None:
            program += _block(number, _judge(rule))
    program.append(_step(_RETURN, _ALLOW))
    return b"".join(program)


def _block(number: int, judged: list[bytes]) -> list[bytes]:
    return [_step(_EQUAL, number, no=len(judged)), *judged]


def _judge(rule: Rule) -> list[bytes]:
    """What follows for the call that a rule is about; always ends with a verdict."""
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
    """Skip one step after these where the argument is among the values."""
    last = len(values) - 1
    return [
        _load_argument(argument),
        *(_step(_EQUAL, value, yes=last - position + 1) for position, value in enumerate(values)),
    ]


def _load_argument(argument: int, *, upper: bool = False) -> bytes:
    """Both processors store the lower half of an argument first."""
    return _step(_LOAD, _ARGUMENTS_AT + 8 * argument + (4 if upper else 0))


def _fail(error: int) -> bytes:
    return _step(_RETURN, _ERROR | error)


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
