"""Launch plans: how a sandboxed program is started, as plain data that is sent to the starting process."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct, field

from retinue.sandbox.confinement import Confinement, ResourceLimits, VisiblePart


class BackendKind(StrEnum):
    """The kinds of sandbox backends."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    DOCKER = "docker"


class CommandStart(Struct, frozen=True):
    """The working folder of one command, relative to the sandbox's, and its variables."""

    below: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)


class LaunchPlan(Struct, frozen=True):
    """The input of `retinue.sandbox.launch` for starting a sandboxed program.

    `options` precede the program's own arguments. `feeds` are files in memory that the program reads by descriptor
    number. `port` is where the proxy listens inside; None disables the network. `part` must still be the same folder,
    or the program is not started.
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
        """Return the plan as JSON-compatible data."""
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
    """A sandbox backend. `name` is its name in the settings.

    A backend with `shows_parts` can show only a part of a folder, and verifies that it is the intended one.
    """

    @property
    def name(self) -> str: ...

    @property
    def shows_parts(self) -> bool: ...

    def find_problem(self, confinement: Confinement) -> str | None:
        """Return why the backend cannot enforce this sandbox on this machine; None if it can."""
        ...

    def wrap(self, confinement: Confinement, entry: CommandStart) -> LaunchPlan:
        """Return how to start a program in the sandbox."""
        ...
