"""`retinue hooks`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import RunCommand


def make_hook(home: Path, name: str, *, program: bool = True) -> None:
    folder = home / "hooks" / name
    folder.mkdir(parents=True)
    (folder / "HOOK.md").write_text(
        f"---\nname: {name}\ndescription: A test.\nmetadata:\n  retinue:\n    events: [message]\n---\nMore about it.\n"
    )
    if program:
        (folder / "handler").write_text("#!/bin/sh\n")
        (folder / "handler").chmod(0o755)


def test_hooks_are_listed_switched_and_explained(retinue: RunCommand, home: Path) -> None:
    make_hook(home, "journal")
    states = {row["name"]: (row["state"], row["source"]) for row in json.loads(retinue("hooks", "list", "--json").out)}
    assert states["journal"] == ("on", "home")
    assert states["session-memory"] == ("off", "bundled")
    assert states["boot-md"] == ("on", "bundled")
    assert "session-memory is on" in retinue("hooks", "enable", "session-memory").out
    assert "journal is off" in retinue("hooks", "disable", "journal").out
    told = json.loads(retinue("hooks", "list", "--json").out)
    assert {row["name"] for row in told if row["enabled"]} == {"boot-md", "session-memory"}
    shown = retinue("hooks", "info", "journal").out
    assert all(word in shown for word in ("A test.", "message", "off", "More about it."))


def test_a_hook_that_cannot_be_used_is_told(retinue: RunCommand, home: Path) -> None:
    assert retinue("hooks", "check").code == 0
    make_hook(home, "journal", program=False)
    result = retinue("hooks", "check")
    assert result.code == 1
    assert "has no program" in result.out
    assert "has no program" in retinue("hooks", "list").out


def test_an_unknown_hook_is_named_with_those_that_are_there(retinue: RunCommand) -> None:
    result = retinue("hooks", "enable", "nothing")
    assert result.code == 2
    assert "There is no hook 'nothing'" in result.err
    assert "command-logger" in result.err
