"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """The number for `max_examples`: `count`, but in the quick profile no more than other properties get there.

    A number in a test's own settings would otherwise hold in every profile.
    """
    return min(count, settings().max_examples) if settings.get_current_profile_name() == "quick" else count
