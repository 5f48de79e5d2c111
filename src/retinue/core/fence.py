"""The right of one process to write for a lease, such as that of a session; the take-over by another one ends it."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

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


class FenceMissing(StorageError):
    """A write that needs a lease was made without one."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"This process does not have the lease of '{name}', so nothing was written. Report this error."
        )


class Lease(Protocol):
    """The exclusive right to run turns of a session; it ends with the process that has it."""

    @property
    def held(self) -> bool:
        """Return whether this object has the lease."""

    def try_acquire(self) -> bool:
        """Take the lease; return False if another holder has it, and True if this object already has it."""

    def ask_to_stop(self) -> bool:
        """Ask the holder of the lease to end its turn; return False if there is no holder."""

    def was_asked_to_stop(self) -> bool:
        """Return whether another process asked the holder to end its turn; True only once per request."""

    async def acquire(self) -> None:
        """Wait until the lease is acquired."""

    def release(self) -> None:
        """Release the lease; does nothing if it is not held."""

    def __enter__(self) -> Self:
        """Take the lease; raise `LeaseTaken` if another holder has it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the lease."""
