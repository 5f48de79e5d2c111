"""The system call filter of sandboxed programs, as BPF bytecode.

The kernel runs a small program for each call: it loads words of a record (call number, architecture, arguments) and
returns a verdict. The filter refuses calls that sandboxed programs do not need and calls that were used in sandbox
escapes; calls newer than the filter return ENOSYS.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from functools import cache
from typing import assert_never

from msgspec import Struct


class Machine(Struct, frozen=True):
    """An architecture: its name, its audit constant, and its column in the table."""

    name: str
    audit: int
    column: int


MACHINES = {machine.name: machine for machine in (Machine("x86_64", 0xC000003E, 0), Machine("aarch64", 0xC00000B7, 1))}

LAST_KNOWN = 462
"""The newest call covered by the rules (`mseal`); later calls are refused. Numbers from 424 on are the same everywhere.
"""


def number_of(call: str, machine: Machine) -> int | None:
    """Return the number of a call on a machine; None if the machine does not have it."""
    return NUMBERS[call][machine.column]


NUMBERS: Mapping[str, tuple[int | None, int | None]] = {
    "_sysctl": (156, None),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "creat": (85, None),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "futimesat": (261, None),
    "get_kernel_syms": (177, None),
    "init_module": (175, 105),
    "inotify_add_watch": (254, 27),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "lchown": (94, None),
    "lookup_dcookie": (212, 18),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open": (2, None),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "vhangup": (153, 58),
}


_LOAD, _EQUAL, _GREATER, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
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


_RUNS_AS_OWNER = 0o6000
"""The set-user-id and set-group-id bits of a mode."""
_CREATES = 0o100 | 0o20000000
"""The flags of open that create a file: O_CREAT and the bit of O_TMPFILE."""


_TRUNCATES, _ACCESS = 0o1000, 0o3
"""The flag O_TRUNC, and the bits that say whether open reads or writes."""


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


class RefuseNewMode(Struct, frozen=True):
    """The call fails if its flags create a file and its mode has one of these bits.

    With `only_written` it also fails if it truncates a file that is not opened for writing, which Linux allows.
    """

    call: str
    flags: int
    mode: int
    mask: int
    only_written: bool = False


Rule = Refuse | RefuseFlags | RefuseValues | RefuseNewMode | OnlyValues | OnlyNull


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
    # programs that run as their owner; the mode of openat2 cannot be read, and programs fall back to openat
    Refuse("openat2", errno.ENOSYS),
    RefuseNewMode("open", 1, 2, _RUNS_AS_OWNER),
    RefuseNewMode("openat", 2, 3, _RUNS_AS_OWNER),
    RefuseFlags("creat", 1, _RUNS_AS_OWNER),
    RefuseFlags("mknod", 1, _RUNS_AS_OWNER),
    RefuseFlags("mknodat", 2, _RUNS_AS_OWNER),
    OnlyValues("personality", 0, _QUERY_PERSONALITY),
    RefuseValues("ioctl", 1, _TYPE_INTO_TERMINAL),
)
"""The rules for all sandboxed programs."""

IN_NAMESPACES: tuple[Rule, ...] = (
    *COMMON,
    OnlyValues("socket", 0, (_UNIX, _INET, _INET6), errno.EAFNOSUPPORT),
    RefuseFlags("chmod", 1, _RUNS_AS_OWNER),
    RefuseFlags("fchmod", 1, _RUNS_AS_OWNER),
    RefuseFlags("fchmodat", 2, _RUNS_AS_OWNER),
    RefuseFlags("fchmodat2", 2, _RUNS_AS_OWNER),
)
"""For a program in its own namespaces: its sockets reach nothing outside, and need no other families."""

ON_THE_HOST: tuple[Rule, ...] = (
    *COMMON,
    # without a network namespace any socket could reach the host; connected socket pairs remain allowed
    Refuse("socket", errno.EACCES),
    # landlock does not control file attributes or inotify watches; changing a mode succeeds without effect,
    # because common programs such as git fail if they cannot set one
    *_refuse("chmod fchmod fchmodat fchmodat2", _NO_ERROR),
    *_refuse("chown lchown fchown fchownat utime utimes futimesat inotify_add_watch"),
    # programs that copy attributes accept a file system without them
    *_refuse("setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr", errno.EOPNOTSUPP),
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

NO_TRUNCATION: tuple[Rule, ...] = (
    Refuse("truncate", errno.EACCES),
    RefuseNewMode("open", 1, 2, _RUNS_AS_OWNER, only_written=True),
    RefuseNewMode("openat", 2, 3, _RUNS_AS_OWNER, only_written=True),
)
"""For a landlock that does not control truncation: files can be truncated only if they are open for writing."""

NO_SIGNALS: tuple[Rule, ...] = _refuse(
    "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal pidfd_open"
)
"""For a program on the host if landlock cannot restrict its signals."""


def this_machine() -> Machine | None:
    """Return the machine's architecture; None if the filter does not support it."""
    return MACHINES.get(platform.machine())


@cache
def build_filter(rules: tuple[Rule, ...], machine: Machine) -> bytes:
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
            compiled = _compile_rule(rule)
            program += [_step(_EQUAL, number, no=len(compiled)), *compiled]
    program.append(_step(_RETURN, _ALLOW))
    return b"".join(program)


def _compile_rule(rule: Rule) -> list[bytes]:
    """Return the instructions of a rule; they always end with a verdict."""
    match rule:
        case Refuse(_, error):
            return [_fail(error)]
        case RefuseFlags(_, argument, mask):
            return [_load_argument(argument), _step(_ANY_BIT, mask, no=1), _fail(errno.EPERM), _step(_RETURN, _ALLOW)]
        case RefuseNewMode(_, flags, mode, mask, only_written):
            return [
                *(_refuse_truncation(flags) if only_written else ()),
                _load_argument(flags),
                _step(_ANY_BIT, _CREATES, no=3),
                _load_argument(mode),
                _step(_ANY_BIT, mask, no=1),
                _fail(errno.EPERM),
                _step(_RETURN, _ALLOW),
            ]
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


def _refuse_truncation(flags: int) -> list[bytes]:
    """Return instructions that refuse to truncate a file unless it is opened for writing."""
    reads, neither = _TRUNCATES, _TRUNCATES | _ACCESS
    return [
        _load_argument(flags),
        _step(_AND, _TRUNCATES | _ACCESS),
        _step(_EQUAL, reads, yes=1),
        _step(_EQUAL, neither, no=1),
        _fail(errno.EACCES),
    ]


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
