"""How values read in what commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.cli.terminal import count, format_path, format_span, format_value, label


def test_a_number_agrees_with_its_noun() -> None:
    assert [count(number, "file") for number in (0, 1, 1_200)] == ["0 files", "1 file", "1,200 files"]


@pytest.mark.parametrize(("seconds", "told"), [(0.4, "0 s"), (59.9, "59 s"), (61, "1 min"), (7_260, "2 h 1 min")])
def test_a_span_is_as_exact_as_one_cares(seconds: float, told: str) -> None:
    assert format_span(seconds) == told


def test_a_place_in_ones_own_folder_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    told = [format_path(f"{tmp_path}{rest}") for rest in ("", "/work", "-other/work")]
    assert told == ["~", "~/work", f"{tmp_path}-other/work"]


def test_fields_read_as_words() -> None:
    assert label("lastSync") == "last sync"
    assert [format_value(value) for value in (True, None, [], ["a", False])] == ["yes", "never", "none", "a; no"]
