"""Restrict the current process permanently: landlock, system call filter, no capabilities, resource limits.

This runs in a forked child right before it executes the sandboxed program, so it uses only the standard library. Any
failure raises: a program is never started with partial restrictions.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 14, 1 << 15
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""The number of file access rights per landlock version; from version 5 on there are 16."""
_BIND_AND_CONNECT_TCP = 3
_SCOPE_SOCKETS_AND_SIGNALS = 3

TRUNCATION_VERSION = 3
"""The first version that controls truncation of files; with earlier ones the system call filter does it."""
SCOPES_VERSION = 6
"""The first version that restricts signals."""
_TCP_VERSION = 4

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAP_AMBIENT = 1, 24, 38, 22, 47
_CLEAR_ALL, _FILTER, _SIGKILL = 4, 2, 9
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def landlock_version() -> int:
    """Return the version of landlock that the kernel offers; 0 if there is none."""
    if _libc is None:
        return 0
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def set_limits(limits: tuple[int, int, int, int], pid: int = 0) -> None:
    """Limit address space, processes, file size and open files; disable core dumps."""
    memory, processes, file_size, open_files = limits
    for what, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.prlimit(pid, what)
        bounded = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.prlimit(pid, what, (bounded, bounded))


def count_own_processes() -> int:
    """Return the number of this user's processes: without a user namespace the kernel's limit counts all of them."""
    mine = os.getuid()
    count = 0
    with os.scandir("/proc") as entries:
        for entry in entries:
            try:
                count += entry.name.isdecimal() and entry.stat().st_uid == mine
            except OSError:
                continue
    return count


def restrict_process(
    rules: Iterable[tuple[str, bool]],
    limits: tuple[int, int, int, int],
    filter_bytes: bytes,
    version: int,
    part: tuple[str, int, int] | None = None,
) -> None:
    """Restrict this process to the paths in `rules`, each readable, some writable; this cannot be undone.

    `version` is that of landlock for which the filter was made: what it does not control, the filter refuses. `part` is
    a path among the rules, with the device and inode that it must have.
    """
    os.setpgid(0, 0)
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    memory, processes, *others = limits
    set_limits((memory, processes + count_own_processes(), others[0], others[1]))
    _drop_capabilities()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _restrict_files(rules, version, part)
    _load_filter(filter_bytes)


def _prctl(*arguments: int) -> None:
    assert _libc is not None
    padded = (*arguments, 0, 0, 0, 0, 0)[:5]
    if _libc.prctl(*(ctypes.c_ulong(argument) for argument in padded)) != 0:
        raise OSError(ctypes.get_errno(), "prctl was refused")


def _drop_capabilities() -> None:
    assert _libc is not None
    if os.geteuid() == 0:
        for capability in range(_LAST_CAPABILITY + 1):
            # a capability that the kernel does not know cannot and need not be dropped
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    if _libc.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capabilities could not be dropped")


def _restrict_files(rules: Iterable[tuple[str, bool]], version: int, part: tuple[str, int, int] | None) -> None:
    assert _libc is not None
    if version < 1:
        raise OSError("the kernel has no landlock")
    everything = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    attributes = struct.pack("=Q", everything)
    if version >= _TCP_VERSION:
        attributes += struct.pack("=Q", _BIND_AND_CONNECT_TCP)
    if version >= SCOPES_VERSION:
        attributes += struct.pack("=Q", _SCOPE_SOCKETS_AND_SIGNALS)
    ruleset = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock was refused")
    for path, writable in rules:
        expected = None if part is None or path != part[0] else (part[1], part[2])
        _allow(ruleset, path, everything, writable=bool(writable), expected=expected)
    if _libc.syscall(_RESTRICT_SELF, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock could not be entered")
    os.close(ruleset)


def _allow(ruleset: int, path: str, everything: int, *, writable: bool, expected: tuple[int, int] | None) -> None:
    assert _libc is not None
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if expected is not None:
            require_same_folder(os.fstat(descriptor), expected)
        if writable:
            rights = everything & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)
        else:
            rights = _EXECUTE | _READ_FILE | _READ_DIR
        if not Path(path).is_dir():
            rights &= _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
        rule = struct.pack("=Qi", rights & everything, descriptor)
        if _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock refused a path", path)
    finally:
        os.close(descriptor)


def require_same_folder(found: os.stat_result, expected: tuple[int, int]) -> None:
    """Raise if the path is not the intended folder, compared by device and inode."""
    if (found.st_dev, found.st_ino) != expected:
        raise OSError("the folder that the session is restricted to was replaced by another one")


def _load_filter(filter_bytes: bytes) -> None:
    assert _libc is not None
    held = ctypes.create_string_buffer(filter_bytes, len(filter_bytes))
    program = struct.pack("@HP", len(filter_bytes) // 8, ctypes.addressof(held))
    if _libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_FILTER), program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the system call filter was refused")
