"""Control groups that limit the number of processes of a command.

The kernel's own limit does not apply to root, a control group does. This runs in the supervisor of a command, so it
uses only the standard library.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOUNTED = "/sys/fs/cgroup"
OWN_GROUPS = "/proc/self/cgroup"
_OURS = "retinue"


def enter_group(mounted: str = MOUNTED, own_groups: str = OWN_GROUPS) -> str | None:
    """Make a control group of this process and move it there; return the folder, None if the system has none.

    Entering can take the kernel 10 ms, so a process does it before it has a command. The parent removes the group.
    """
    for base in find_bases(mounted, own_groups):
        group = f"{base}/{_OURS}-{os.getpid()}"
        try:
            os.makedirs(group, exist_ok=True)  # noqa: PTH103
            _read(f"{group}/pids.max")  # missing if the controller is not enabled
            _write(f"{group}/cgroup.procs", str(os.getpid()))
        except OSError:
            remove_group(group)
            continue
        return group
    return None


def limit_group(group: str, processes: int) -> None:
    """Limit the processes and threads of a group."""
    _write(f"{group}/pids.max", str(processes))


def find_bases(mounted: str = MOUNTED, own_groups: str = OWN_GROUPS) -> Iterator[str]:
    """Yield the folders below which groups with a limit of processes can be made, of both versions of the interface."""
    own = _read_own_groups(own_groups)
    if os.path.isdir(f"{mounted}/pids"):  # noqa: PTH112
        # below its own group, where limits of the service that this process belongs to still hold
        inner = os.path.normpath(f"{mounted}/pids/{own.get('pids', '')}")
        if own.get("pids", "/") != "/" and os.path.isdir(inner):  # noqa: PTH112
            yield inner
        yield f"{mounted}/pids"
    # elsewhere than at the root, a group with processes cannot have groups below it
    elif os.path.isfile(f"{mounted}/cgroup.controllers") and own == {"": "/"}:  # noqa: PTH113
        base = f"{mounted}/{_OURS}"
        try:
            os.makedirs(base, exist_ok=True)  # noqa: PTH103
            _enable_pids(mounted)
            _enable_pids(base)
        except OSError:
            return
        yield base


def _enable_pids(folder: str) -> None:
    if "pids" not in _read(f"{folder}/cgroup.subtree_control").split():
        _write(f"{folder}/cgroup.subtree_control", "+pids")


def _read_own_groups(path: str) -> dict[str, str]:
    """Return the groups of this process by controller; the name of version 2 is empty."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in _read(path).splitlines():
            _, controllers, group = line.split(":", 2)
            found |= dict.fromkeys(controllers.split(","), group)
    return found


def remove_group(group: str) -> None:
    """Remove a control group if nothing runs in it."""
    with contextlib.suppress(OSError):
        os.rmdir(group)  # noqa: PTH106


def remove_abandoned_groups(base: str) -> None:
    """Remove the control groups of supervisors that have ended without a parent that would have removed them."""
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            name, _, supervisor = entry.name.partition("-")
            if name == _OURS and supervisor.isdecimal() and not os.path.exists(f"/proc/{supervisor}"):  # noqa: PTH110
                remove_group(entry.path)


def remove_groups_of(supervisor: int, bases: list[str]) -> None:
    """Remove the control group of a supervisor that has ended."""
    for base in bases:
        remove_group(f"{base}/{_OURS}-{supervisor}")


def _read(path: str) -> str:
    with open(path) as stream:  # noqa: PTH123
        return stream.read()


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
