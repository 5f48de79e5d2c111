"""A home that an earlier version made opens unchanged, and what that version left unanswered is answered once.

How the home was recorded is in `tests/fixtures/make_previous_home.py`; what it must show, in its `expected.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.previous_home import RECORDED
from tests.fixtures.reading import COMMANDS, open_and_finish

pytestmark = pytest.mark.slow


def test_a_home_of_the_previous_version_opens_and_is_finished(tmp_path: Path) -> None:
    expected = json.loads((RECORDED / "expected.json").read_text())
    opened, finished = open_and_finish(tmp_path)
    for name in COMMANDS:
        assert opened[name] == expected["opened"][name], name
    for name, value in expected["finished"].items():
        assert finished[name] == value, name
