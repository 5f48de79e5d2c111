"""A sandbox backend that uses landlock."""

from __future__ import annotations

from retinue.sandbox.confinement import (
    BackendProblem,
    CommandStart,
    Confinement,
    LaunchPlan,
    SandboxLevel,
    SandboxParts,
)
from retinue.sandbox.landlock import Landlock

WRAPPED: list[str] = []


class DeskSandbox:
    """Wraps the commands as the built-in backend does."""

    name = "desk-sandbox"
    level = SandboxLevel.LANDLOCK
    shows_parts = False

    def __init__(self) -> None:
        self._inner = Landlock()

    def find_problem(self, confinement: Confinement) -> BackendProblem | None:
        return self._inner.find_problem(confinement)

    def reaches_network(self, confinement: Confinement) -> bool:
        return self._inner.reaches_network(confinement)

    def wrap(self, confinement: Confinement, entry: CommandStart) -> LaunchPlan:
        WRAPPED.append(entry.below)
        return self._inner.wrap(confinement, entry)


def make_backend(parts: SandboxParts) -> DeskSandbox:
    return DeskSandbox()
