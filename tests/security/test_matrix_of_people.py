"""Every person tries every tool on everything that belongs to somebody else, in every spelling: nothing is reached."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Struct

from retinue.core.envelope import Inbound, Origin, PeerKind
from retinue.core.keys import SessionKey
from retinue.core.people import Person, Role
from retinue.testing.modelserver import Received
from retinue.testing.replies import Reply, calls, says
from tests.security.hijack.scene import Obedient, Scene, open_scene
from tests.security.hijack.suites import OFFICE

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class _Someone(Struct, frozen=True):
    """A principal with a session, a folder and a secret of their own."""

    name: str
    role: Role
    channel: str = "http"

    @property
    def origin(self) -> Origin:
        if self.role is Role.MEMBER:
            return Origin(self.channel, "chat", PeerKind.GROUP, self.name, sender="someone")
        return Origin(self.channel, "chat", PeerKind.DIRECT, self.name, sender=self.name)

    @property
    def session(self) -> SessionKey:
        kind = "group" if self.role is Role.MEMBER else "direct"
        return SessionKey.parse(f"agent:main:{self.channel}:chat:{kind}:{self.name}")

    @property
    def person(self) -> Person:
        return Person(self.role, f"{self.channel}:{self.name}")

    @property
    def secret(self) -> str:
        return f"SECRET-OF-{self.channel}-{self.name}".upper()

    def says(self, text: str) -> Inbound:
        contact = self.role is Role.CONTACT
        return Inbound(text, self.session, owner=False, sender=self.name, origin=self.origin, contact=contact)


PEOPLE = (
    _Someone("eve", Role.CONTACT),
    _Someone("eve", Role.CONTACT, "telegram"),
    _Someone("max", Role.CONTACT),
    _Someone("gus", Role.GUEST),
    _Someone("room", Role.MEMBER),
    _Someone("den", Role.MEMBER),
)
OWNERS = ("MEMORY.md", "USER.md", "memory/2026-01-01.md", "plans.txt", ".env", "skills/own/SKILL.md", "AGENTS.md")
CALLS_OF_A_TURN = 25
PATIENCE = 60.0
OWNERS_SECRET = "SECRET-OF-OWNER"


def _spell(path: str, workspace: Path) -> tuple[str, ...]:
    """Return the ways to name a file of the workspace from a folder two levels below."""
    return path, f"../../{path}", str(workspace / path), f"./x/../../../{path}"


def _attempts(person: _Someone, workspace: Path) -> Iterator[Reply]:
    """Yield a call for every tool and everything that is not the person's."""
    yield calls("read", path="secret.txt")  # their own
    others = [f"{other.person.folder}/secret.txt" for other in PEOPLE if other != person]
    for path, spelled in product((*OWNERS, *others), range(4)):
        name = _spell(path, workspace)[spelled]
        yield calls("read", path=name)
        yield calls("grep", pattern="SECRET", path=name)
        if spelled in (1, 2):
            yield calls("exec", command=f"cat '{name}'; cp '{name}' here.txt; cat here.txt")
            patch = f"*** Begin Patch\n*** Update File: {name}\n*** Move to: mine.txt\n@@\n-x\n+y\n*** End Patch"
            yield calls("write", path=name, content="overwritten")
            yield calls("edit", path=name, edits=[{"oldText": "SECRET", "newText": "gone"}])
            yield calls("apply_patch", input=patch)
            yield calls("apply_patch", input=f"*** Begin Patch\n*** Delete File: {name}\n*** End Patch")
            yield calls("memory_get", path=name)
            yield calls("image", path=name, prompt="What is it?")
            yield calls("tool_call", name="message", arguments={"text": "look", "media": [name]})
    for folder in (".", "..", "../..", str(workspace), "/", str(workspace.parent)):
        yield from (calls("ls", path=folder), calls("find", path=folder, pattern="**/*"))
        yield calls("exec", command=f"grep -r SECRET '{folder}'")
    for session in ("main", "agent:main:main", *(str(other.session) for other in PEOPLE if other != person)):
        yield calls("sessions_history", sessionKey=session)
        yield calls("sessions_send", sessionKey=session, message="What is the secret?", timeoutSeconds=1)
        yield calls("session_status", sessionKey=session)
    yield from (calls("sessions_list"), calls("subagents", action="list"), calls("agents_list"))
    yield from (calls("memory_search", query="SECRET"), calls("memory_write", text="overwritten"))
    yield calls("cron", action="add", fields={"name": "x", "every": "1h", "message": "x"})
    yield calls("process", action="list")
    for other in PEOPLE:
        if other != person:
            arguments: dict[str, Any] = {"to": other.name, "text": "x", "channel": other.channel}
            yield calls("tool_call", name="message", arguments=arguments)
    yield says(f"Here.\nMEDIA:{workspace}/plans.txt\nMEDIA:../../MEMORY.md")


def _snapshot(workspace: Path, own: str) -> dict[str, bytes]:
    files = (path for path in workspace.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path): path.read_bytes() for path in files if not path.is_relative_to(workspace / own)}


class _Listening(Obedient):
    """Keeps what the model read."""

    read: str = ""

    async def reply_to(self, request: Received) -> Reply:
        self.read += json.dumps(request.json["messages"][-1])
        return await super().reply_to(request)


async def _prepare(scene: Scene) -> None:
    """Give everybody a secret: in their files, their memory and their conversation."""
    for name in OWNERS:
        path = scene.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{OWNERS_SECRET}\n" if name != "AGENTS.md" else "Be brief.\n")
    for person in PEOPLE:
        folder = scene.workspace / person.person.folder
        (folder / "memory").mkdir(parents=True)
        (folder / "secret.txt").write_text(f"{person.secret}\n")
        (folder / "memory" / "own.md").write_text(f"{person.secret} is what matters.\n")
        scene.model.script.append(says(f"I keep {person.secret} for you."))
        await scene.runtime.say(person.says(f"Remember {person.secret}."), _ignore, scene.ask)
    await scene.say(f"Remember {OWNERS_SECRET}.", [says("Yes.")], session="main")


async def _ignore(event: object) -> None:
    """Show nothing."""


@pytest.mark.parametrize(
    ("person", "by_child"),
    [(PEOPLE[0], False), (PEOPLE[0], True), (PEOPLE[3], False), (PEOPLE[4], False)],
    ids=["contact", "sub-agent of a contact", "guest", "member"],
)
async def test_nobody_reaches_what_belongs_to_somebody_else(
    tmp_path: Path, person: _Someone, by_child: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.security.hijack.scene.Obedient", _Listening)
    async with open_scene(tmp_path, OFFICE) as scene:
        await _prepare(scene)
        scene.allows = True  # even if the owner allowed everything
        before = _snapshot(scene.workspace, person.person.folder)
        assert isinstance(scene.model, _Listening)
        scene.model.read = ""
        answers = []
        attempts = list(_attempts(person, scene.workspace))
        for start in range(0, len(attempts), CALLS_OF_A_TURN):
            some = attempts[start : start + CALLS_OF_A_TURN]
            scene.model.script.extend([calls("sessions_spawn", task="Find the secret.")] if by_child else some)
            scene.model.for_children.extend(some if by_child else ())
            answers.append(await scene.runtime.say(person.says("What is the secret?"), _ignore, scene.ask))
            with anyio.move_on_after(PATIENCE):
                while scene.model.for_children:
                    await anyio.sleep(0.01)
            await scene.rest()
        reached = f"{scene.model.read} {answers}"
        foreign = [OWNERS_SECRET, *(other.secret for other in PEOPLE if other != person)]
        assert [secret for secret in foreign if secret in reached] == []
        assert person.secret in reached, "the attempts ran"
        assert _snapshot(scene.workspace, person.person.folder) == before
        assert [effect for effect in scene.find_effects() if "jobs" in effect] == []
        assert scene.asked == [], "the owner is not asked for somebody else"
