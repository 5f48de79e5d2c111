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
    assert {event["workspaceDir"] for event in told} == {str(stage.workspace)}
    assert all(event["sessionId"] for event in told)
    assert told[0]["sessionId"] == told[1]["sessionId"]


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
        ([], "", "lists no events"),
        (["message:eaten"], "", "there is no event 'message:eaten'"),
        (["message"], "handler", "has no program"),
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


SPEAKING = """#!/bin/sh
cat > /dev/null
printf '{"messages": ["Tidy desk, tidy mind.", 7, ""]}'
"""


async def test_a_hook_may_say_something_when_a_command_is_given(tmp_path: Path) -> None:
    async with staged(tmp_path, says("Hello.")) as stage:
        make_hook(stage.home.path, "sage", ["command:new", "message"], SPEAKING)
        hello, fresh = await stage.ask("hi", "/new")
    assert hello.text == "Hello."
    assert fresh.text.endswith("The old one is archived.\n\n[sage] Tidy desk, tidy mind.")


async def test_any_command_can_be_heard_of(tmp_path: Path) -> None:
    place = tmp_path / "heard"
    async with staged(tmp_path, config=entries(place)) as stage:
        make_hook(stage.home.path, "listener", ["command", "session:end"])
        await stage.ask("/stop", "/think high", "/nonsense")
    told = heard(place)
    assert [event["action"] for event in told] == ["stop", "think"]
    assert told[1]["context"] == {"arguments": "high", "sender": "terminal:owner"}


NAMING = """#!/bin/sh
cat > "$PLACE"
printf '{"bootstrapFiles": ["docs/HOUSE.md", "../secret.md", "/etc/passwd", "%s/docs/ROOF.md"]}' "$WHERE"
"""


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_hook_puts_files_of_the_workspace_into_the_prompt_where_it_may(tmp_path: Path, allowed: bool) -> None:
    place = tmp_path / "heard"
    where = str(tmp_path / "home" / "workspace")
    config = entries(place, env={"PLACE": str(place), "WHERE": where}, allowPromptInjection=allowed)
    async with staged(tmp_path, says("Hello."), says("Again."), config=config) as stage:
        (tmp_path / "home").mkdir(exist_ok=True)
        make_hook(stage.home.path, "listener", ["agent:bootstrap"], NAMING)
        (stage.home.path / "secret.md").write_text("The safe is behind the picture.")
        docs = stage.workspace / "docs"
        docs.mkdir(parents=True)
        (docs / "HOUSE.md").write_text("The house is blue.")
        (docs / "ROOF.md").write_text("The roof leaks.")
        await stage.ask("hi", "again")
        sent = [request.body.decode() for request in stage.server.model_requests]
        audit = stage.home.audit_log.read_text() if stage.home.audit_log.exists() else ""
    assert all(("The house is blue." in body) is allowed for body in sent)
    assert all(("The roof leaks." in body) is allowed for body in sent)
    assert all("behind the picture" not in body and "root:" not in body for body in sent)
    assert audit.count("hook:listener") == (1 if allowed else 0)
    assert place.exists() is allowed


async def test_a_hook_that_lacks_what_it_needs_is_not_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "heard"
    async with staged(tmp_path, says("Hello."), config=entries(place)) as stage:
        folder = make_hook(stage.home.path, "listener", ["message"])
        text = (folder / "HOOK.md").read_text()
        needs = "    requires:\n      bins: [no-such-program]\n    events:"
        (folder / "HOOK.md").write_text(text.replace("    events:", needs))
        await stage.ask("hi")
    assert heard(place) == []
    assert "needs the program `no-such-program`" in caplog.text
