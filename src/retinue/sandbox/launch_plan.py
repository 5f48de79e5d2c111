"""How a program is started confined, as plain data: it crosses into the process that starts it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct, field

from retinue.sandbox.confinement import Confinement, ResourceLimits, VisiblePart


class BackendKind(StrEnum):
    """What confines."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    DOCKER = "docker"


class CommandStart(Struct, frozen=True):
    """What one command brings along: the folder it starts in, below the sandbox's, and its variables."""

    below: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)


class LaunchPlan(Struct, frozen=True):
    """What `retinue.sandbox.launch` needs to start a program confined.

    `options` stand before the program's own words. `feeds` are files that exist only in memory, for the programs that
    read them by the number of a descriptor. `port` is where the proxy listens inside; None is no network. `part` must
    be the folder that it was, or the program is not started.
    """

    kind: BackendKind
    program: str = ""
    options: tuple[str, ...] = ()
    feeds: tuple[bytes, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: ResourceLimits | None = None
    rules: tuple[tuple[str, bool], ...] = ()
    port: int | None = None
    stamp: str = ""
    part: VisiblePart | None = None

    def plan(self) -> dict[str, Any]:
        """The wrapping as JSON can carry it."""
        return {
            "kind": self.kind.value,
            "program": self.program,
            "options": self.options,
            "feeds": [feed.hex() for feed in self.feeds],
            "environment": dict(self.environment),
            "limits": None
            if self.limits is None
            else [self.limits.memory, self.limits.processes, self.limits.file_size, self.limits.open_files],
            "rules": self.rules,
            "port": self.port,
            "stamp": self.stamp,
            "part": None if self.part is None else [str(self.part.path), self.part.place.device, self.part.place.inode],
        }


class Backend(Protocol):
    """One way to confine. Its `name` is the one in the settings.

    One that `shows_parts` shows no more of a folder than a part of it, and no other folder in its place.
    """

    @property
    def name(self) -> str: ...

    @property
    def shows_parts(self) -> bool: ...

    def find_problem(self, confinement: Confinement) -> str | None:
        """Why it cannot enforce this sandbox on this machine; None where it can."""
        ...

    def wrap(self, confinement: Confinement, entry: CommandStart) -> LaunchPlan:
        """How to start a program in the sandbox."""
        ...
