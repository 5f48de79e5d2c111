"""The cache of the last result compares its arguments by identity."""

from __future__ import annotations

from retinue.runtime.agents.workspace import MemoizeLast


def test_only_other_arguments_create_a_new_result() -> None:
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
