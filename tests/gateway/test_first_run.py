"""The first run of a new user, as `scripts/first_run.py` does it: in a terminal and on the page."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[2] / "scripts" / "first_run.py"


def load_script() -> ModuleType:
    found = importlib.util.spec_from_file_location("first_run", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["first_run"] = module
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", ["checkout", "wheel", "offline", "page"])
def test_a_new_user_gets_a_useful_answer(case: str) -> None:
    if case == "page" and not (shutil.which("chromium") or shutil.which("chromium-browser")):
        pytest.skip("there is no Chromium here; `make system` installs it")
    if case == "checkout" and shutil.which("make") is None:
        pytest.skip("there is no make here")
    script = load_script()
    try:
        course = script.CASES[case](script.Options())
    except script.NotPossible as error:
        pytest.skip(str(error))
    assert "the first useful answer" in [step for step, _ in course.steps]
    assert len(course.steps) <= 6
