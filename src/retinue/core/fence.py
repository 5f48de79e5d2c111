"""The right of one process to write for a lease, such as that of a session; the take-over by another one ends it."""

from __future__ import annotations

from msgspec import Struct

from retinue.core.errors import StorageError


class Fence(Struct, frozen=True):
    """A lease and the epoch in which a process has it: its writes succeed only while both are still the same.

    A process that was presumed dead and continues has an old epoch, so what it writes late changes nothing.
    """

    name: str
    owner: int
    epoch: int


class FenceLost(StorageError):
    """Another process has taken over the lease, so nothing of this write was stored."""

    def __init__(self, fence: Fence) -> None:
        super().__init__(
            f"Another worker has taken over '{fence.name}' (this one had epoch {fence.epoch}), so nothing was "
            "written. The other worker continues."
        )
        self.fence = fence
