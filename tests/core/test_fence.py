"""The fence of a lease, as errors and logs show it."""

from __future__ import annotations

from retinue.core.errors import StorageError
from retinue.core.fence import Fence, FenceLost


def test_a_lost_fence_says_what_was_taken_over_and_is_an_error_of_the_storage() -> None:
    lost = FenceLost(Fence("agent:main:main", 7, 3))
    assert isinstance(lost, StorageError)
    assert lost.fence.owner == 7
    assert "agent:main:main" in str(lost)
    assert "epoch 3" in str(lost)
