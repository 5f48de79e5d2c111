"""The landlock backend, for machines where bubblewrap is missing or must not create namespaces.

It is weaker than namespaces: a program can see that other files and processes exist, but cannot read, write or signal
them. There is no network and no socket of any kind, and changes of a file's mode have no effect.
"""

from __future__ import annotations

import os
import sys
from functools import cache, cached_property

from msgspec import Struct

from retinue.sandbox.confinement import (
    ETC_FILES,
    ETC_FOLDERS,
    NO_FILTER,
    SYSTEM_FOLDERS,
    BackendKind,
    BackendProblem,
    CommandStart,
    Confinement,
    LaunchPlan,
    Network,
    SandboxLevel,
    SandboxParts,
)
from retinue.sandbox.guarded_files import find_guarded
from retinue.sandbox.process_restrictions import SCOPES_VERSION, TRUNCATION_VERSION, landlock_version
from retinue.sandbox.seccomp import NO_SIGNALS, NO_TRUNCATION, ON_THE_HOST, build_filter, this_machine

_ETC = (*ETC_FOLDERS, *ETC_FILES, "passwd", "group", "nsswitch.conf", "hosts")
_KERNEL_FILES = ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Landlock(Struct, frozen=True, dict=True):
    """The kernel's landlock."""

    name: str = "landlock"
    level: SandboxLevel = SandboxLevel.LANDLOCK
    shows_parts: bool = True

    @cached_property
    def version(self) -> int:
        return landlock_version()

    def find_problem(self, confinement: Confinement) -> BackendProblem | None:
        """Return why landlock cannot enforce a sandbox; None if it can."""
        if sys.platform != "linux":
            return BackendProblem("landlock exists on Linux only", "Use the backend docker or podman.")
        if this_machine() is None:
            return NO_FILTER
        if not self.version:
            return BackendProblem(
                "the kernel has no landlock",
                "Use Linux 5.13 or newer with `landlock` in the list of /sys/kernel/security/lsm; "
                "the kernel parameter `lsm=landlock,…` enables it.",
            )
        if confinement.network is Network.PROXY:
            return BackendProblem(
                "landlock has no network namespace for the proxy",
                "Make bubblewrap work, or set sandbox.network to off.",
            )
        if confinement.hidden:
            return BackendProblem(
                f"landlock cannot hide {confinement.hidden[0]} inside a visible folder",
                "Move the workspace out of the folders that contain it, or make bubblewrap work.",
            )
        return None

    def reaches_network(self, confinement: Confinement) -> bool:
        """Return whether commands have any network."""
        return confinement.network is not Network.OFF

    def wrap(self, confinement: Confinement, entry: CommandStart) -> LaunchPlan:
        """Return how to start a program in the sandbox."""
        machine = this_machine()
        assert machine is not None
        calls = ON_THE_HOST if self.version >= SCOPES_VERSION else (*ON_THE_HOST, *NO_SIGNALS)
        if self.version < TRUNCATION_VERSION:
            calls = (*NO_TRUNCATION, *calls)  # of several rules for a call the first one decides
        # git fails if a configuration file is not readable, but not if it is disabled
        fixed = {"HOME": str(confinement.user_home), "TMPDIR": str(confinement.temporary), "GIT_CONFIG_NOSYSTEM": "1"}
        return LaunchPlan(
            kind=BackendKind.LANDLOCK,
            feeds=(build_filter(calls, machine),),
            environment={**entry.environment, **fixed},
            limits=confinement.limits,
            rules=tuple(_rules(confinement)),
            landlock=self.version,
            stamp=str(confinement.own / "sandbox.json"),
            part=confinement.part,
            guarded=_guard(confinement),
        )


def _guard(confinement: Confinement) -> tuple[str, tuple[str, ...]]:
    if not confinement.writable:
        return "", ()
    folder = str(confinement.visible)
    return folder, tuple(find_guarded(folder))


def _rules(confinement: Confinement) -> list[tuple[str, bool]]:
    """Return the accessible paths, and whether each is writable."""
    readable = ["/usr", *SYSTEM_FOLDERS, *(f"/etc/{name}" for name in _ETC), *(f"/proc/{n}" for n in _KERNEL_FILES)]
    readable += [os.fspath(path) for path in confinement.shown]
    own = (confinement.temporary, confinement.user_home, *confinement.write_paths)
    return [
        *((path, False) for path in readable),
        *((path, True) for path in _DEVICES),
        *((os.fspath(path), True) for path in own),
        (os.fspath(confinement.visible), confinement.writable),
    ]


@cache
def _shared() -> Landlock:
    return Landlock()


def make_backend(parts: SandboxParts) -> Landlock:
    """Return the backend; it is tested once in a process."""
    return _shared()
