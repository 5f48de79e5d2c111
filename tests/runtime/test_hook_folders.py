"""Hook folders: programs that are told what happens, and can break nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue.automation.hook_folders import HookFolderError, read_folder
from retinue.testing.replies import says
from tests.runtime.conftest import staged

pytestmark = pytest.mark.anyio

RECORDING = '#!/bin/sh\ncat >> "$PLACE"\nprintf "\\n" >> "$PLACE"\n'


def make_hook(root: Path, name: str, events: list[str], program: str = RECORDING) -> Path:
    folder = root / "hooks" / name
    folder.mkdir(parents=True)
    (folder / "HOOK.md").write_text(
        f"---\nname: {name}\ndescription: A test.\nmetadata:\n  retinue:\n    events: {json.dumps(events)}\n---\n"
    )
    (folder / "handler").write_text(program)
    (folder / "handler").chmod(0o755)
    return folder


def heard(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.read_text().splitlines() if line] if place.exists() else []


def entries(place: Path, **more: Any) -> dict[str, Any]:
    return {"hooks": {"internal": {"entries": {"listener": {"env": {"PLACE": str(place)}, **more}}}}}


async def test_a_hook_hears_what_it_asked_for_in_order(tmp_path: Path) -> None:
    place = tmp_path / "heard"
    async with staged(tmp_path, says("Hello."), config=entries(place)) as stage:
        make_hook(stage.home.path, "listener", ["message", "command:new"])
        await stage.ask("hi", "/new")
        told = heard(place)
    assert [(event["type"], event["action"]) for event in told] == [
        ("message", "received"),
        ("message", "sent"),
        ("command", "new"),
    ]
    assert told[0]["context"] == {"text": "hi", "source": "chat"}
    assert told[0]["sessionKey"] == "agent:main:main"


async def test_a_hook_that_fails_or_is_off_harms_nobody(tmp_path: Path) -> None:
    place = tmp_path / "heard"
    async with staged(tmp_path, says("Hello."), says("Again."), config=entries(place, enabled=False)) as stage:
        make_hook(stage.home.path, "listener", ["message"])
        make_hook(stage.home.path, "broken", ["message"], "#!/bin/sh\necho no >&2; exit 3\n")
        make_hook(stage.home.path, "nonsense", ["message"], "not a program")
        first, second = await stage.ask("hi", "again")
        assert (first.text, second.text) == ("Hello.", "Again.")
    assert heard(place) == []


async def test_a_hook_in_a_workspace_is_off_until_it_is_named(tmp_path: Path) -> None:
    place = tmp_path / "heard"
    program = RECORDING.replace('"$PLACE"', str(place))
    for config, expected in (({}, 0), (entries(place), 2)):
        async with staged(tmp_path / str(expected), says("Hello."), config=config) as stage:
            stage.workspace.mkdir(parents=True)
            make_hook(stage.workspace, "listener", ["message"], program)
            await stage.ask("hi")
            assert len(heard(place)) == expected


async def test_secrets_do_not_reach_a_hook(tmp_path: Path) -> None:
    place = tmp_path / "heard"
    async with staged(tmp_path, says("Hello."), config=entries(place)) as stage:
        make_hook(stage.home.path, "listener", ["message:received"])
        await stage.ask("my key is secret-key-0123456789")
        assert "secret-key-0123456789" not in place.read_text()


@pytest.mark.parametrize(
    ("events", "broken", "told"),
    [
        ([], "", "names no events"),
        (["message:eaten"], "", "there is no event 'message:eaten'"),
        (["message"], "handler", "has no program to run"),
        (["message"], "HOOK.md", "cannot be read"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(tmp_path: Path, events: list[str], broken: str, told: str) -> None:
    folder = make_hook(tmp_path, "listener", events)
    if broken == "handler":
        (folder / "handler").chmod(0o644)
    elif broken:
        (folder / broken).write_bytes(b"---\nmetadata: [\xff\n---\n")
    with pytest.raises(HookFolderError, match=told):
        read_folder(folder)
