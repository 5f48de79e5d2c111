"""What was made last is given again for the very same things."""

from __future__ import annotations

from retinue.core.memoize_last import MemoizeLast


def test_it_is_made_again_for_other_things_alone() -> None:
    latest: MemoizeLast[list[int]] = MemoizeLast()
    made: list[int] = []

    def make() -> list[int]:
        made.append(len(made))
        return [len(made)]

    one, same = [1], [1]
    first = latest.get(make, one, "x")
    assert latest.get(make, one, "x") is first
    assert latest.get(make, same, "x") is not first, "equal is not the same"
    assert made == [0, 1]
    assert latest.get(make, one, "x") == [3], "only the last is kept"
