"""The methods of the control page's views: sessions, files, approvals, and what the owner inspects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anyio
import pytest

from retinue.core.keys import SessionKey
from retinue.core.messages import AssistantMessage, Text, UserMessage
from retinue.runtime.agents.workspace import open_sessions
from retinue.runtime.home import load_home
from retinue.sessions.entries import MessageAdded
from retinue.testing.replies import calls, says
from retinue.wire.protocol import Scope
from tests.gateway.conftest import PATIENCE, Hall, RawSocket, raw_socket

pytestmark = pytest.mark.anyio


@pytest.fixture
async def owner(hall: Hall) -> AsyncIterator[RawSocket]:
    async with raw_socket(hall) as raw:
        yield raw


async def ask(owner: RawSocket, text: str, **params: object) -> None:
    run = await owner.result("agent", message=text, idempotencyKey=text, **params)
    await owner.result("agent.wait", runId=run["runId"], timeoutMs=60_000)


async def test_words_are_found_in_the_messages_of_all_sessions(hall: Hall, owner: RawSocket) -> None:
    hall.model.push(says("The projector belongs to Ada."), says("Yes."))
    await ask(owner, "Whose is the projector?")
    await ask(owner, 'Is the "cable" long?', sessionKey="agent:main:chat-1")
    found = await owner.result("sessions.search", query="PROJECTOR ada")
    assert [(hit["sessionKey"], hit["role"]) for hit in found["hits"]] == [("agent:main:main", "assistant")]
    assert found["hits"][0]["snippet"] == "The projector belongs to Ada."
    assert found["complete"] is True
    quoted = await owner.result("sessions.search", query='"cable"')
    assert [hit["sessionKey"] for hit in quoted["hits"]] == ["agent:main:chat-1"]
    both = await owner.result("sessions.search", query="projector", limit=1)
    assert (len(both["hits"]), both["complete"]) == (1, False)
    assert (await owner.result("sessions.search", query="nothing-like-this"))["hits"] == []


async def test_older_messages_are_read_page_by_page(hall: Hall, owner: RawSocket) -> None:
    for number in range(3):
        await ask(owner, f"message {number}")
    whole = (await owner.result("chat.history"))["entries"]
    pages = [(await owner.result("chat.history", limit=2, skip=skip)) for skip in (0, 2, 4, 6)]
    assert [page["total"] for page in pages] == [6, 6, 6, 6]
    ids = [[entry["id"] for entry in page["entries"]] for page in pages]
    assert [*ids[2], *ids[1], *ids[0]] == [entry["id"] for entry in whole]
    assert ids[3] == []


async def test_a_session_is_forked_exported_and_archived(hall: Hall, owner: RawSocket) -> None:
    hall.model.push(says("First."), says("Second."))
    await ask(owner, "one")
    fork = (await owner.result("sessions.fork"))["sessionKey"]
    await ask(owner, "two", sessionKey=fork)
    sent = json.loads(hall.model.model_requests[-1].body)["messages"]
    assert [str(each["content"]) for each in sent if each["role"] == "assistant"] == ["First."]
    assert len((await owner.result("chat.history"))["entries"]) == 2
    text = (await owner.result("sessions.export", sessionKey=fork))["text"]
    assert text.index("one") < text.index("First.") < text.index("Second.")
    exported = (await owner.result("sessions.export", sessionKey=fork, form="json"))["text"]
    assert json.loads(exported)["entries"]
    await owner.result("sessions.archive", sessionKey=fork)
    assert [row["key"] for row in (await owner.result("sessions.list"))["sessions"]] == ["agent:main:main"]
    refused = await owner.call("sessions.fork", sessionKey="agent:main:nothing")
    assert refused["error"]["code"] == "not_found"


async def test_a_file_is_written_only_if_nobody_changed_it_since_it_was_read(hall: Hall, owner: RawSocket) -> None:
    note = hall.home.workspace / "memory" / "trip.md"
    await ask(owner, "hi")
    created = await owner.result("workspace.write", path="memory/trip.md", text="train\n")
    read = await owner.result("workspace.read", path="memory/trip.md")
    assert (read["text"], read["hash"]) == ("train\n", created["hash"])
    note.write_text("plane\n")
    for stale in (read["hash"], None):
        lost = await owner.call("workspace.write", path="memory/trip.md", text="bus\n", baseHash=stale)
        assert lost["error"]["code"] == "conflict"
    assert note.read_text() == "plane\n"
    again = await owner.result("workspace.read", path="memory/trip.md")
    await owner.result("workspace.write", path="memory/trip.md", text="bus\n", baseHash=again["hash"])
    assert note.read_text() == "bus\n"
    files = {row["path"]: row["inPrompt"] for row in (await owner.result("workspace.list"))["files"]}
    assert files["memory/trip.md"] is False
    assert files["AGENTS.md"] is True
    kinds = [entry["kind"] for entry in (await owner.result("audit.log"))["entries"]]
    assert kinds.count("workspace_file_written") == 2


@pytest.mark.parametrize(
    "path", ["../retinue.json", "/etc/passwd", ".retinue/plugins/x.py", "memory/../../x", "memory"]
)
async def test_nothing_outside_of_the_workspace_is_read_or_written(hall: Hall, owner: RawSocket, path: str) -> None:
    (hall.home.workspace / "memory").mkdir(parents=True, exist_ok=True)
    for method, more in (("workspace.read", {}), ("workspace.write", {"text": "x"})):
        assert not (await owner.call(method, path=path, **more))["ok"], method


async def test_a_link_does_not_lead_out_of_the_workspace(hall: Hall, owner: RawSocket) -> None:
    hall.home.workspace.mkdir(parents=True, exist_ok=True)
    outside = hall.home.path.parent / "outside.md"
    outside.write_text("secret")
    (hall.home.workspace / "link.md").symlink_to(outside)
    assert not (await owner.call("workspace.read", path="link.md"))["ok"]
    assert not (await owner.call("workspace.write", path="link.md", text="changed"))["ok"]
    assert outside.read_text() == "secret"


async def test_decisions_are_kept_with_who_made_them_and_rules_are_edited(hall: Hall, owner: RawSocket) -> None:
    hall.model.push(calls("exec", command="touch asked.txt"), says("So be it."))
    async with hall.client(asks=True):
        run = await owner.result("agent", message="make a file", idempotencyKey="a")
        with anyio.fail_after(PATIENCE):
            while not (pending := (await owner.result("approvals.list"))["approvals"]):
                await anyio.sleep(0.01)
    request = pending[0]["request"]
    await owner.result("approvals.resolve", id=request["id"], verdict="deny", reason="not now")
    await owner.result("agent.wait", runId=run["runId"], timeoutMs=60_000)
    [kept] = (await owner.result("approvals.history"))["requests"]
    assert (kept["id"], kept["state"], kept["tool"]) == (request["id"], "denied", "exec")
    assert "not now" in kept["because"]
    assert kept["decidedBy"]
    assert kept["decidedAt"] > kept["askedAt"]
    added = (await owner.result("rules.add", pattern="touch asked.txt"))["rules"]
    [rule] = [each for each in added if each["pattern"] == "touch asked.txt"]
    assert rule["addedBy"]
    refused = await owner.call("rules.add", pattern="sh -c *")
    assert refused["ok"] is False or refused["payload"]["rules"]
    left = (await owner.result("rules.remove", id=rule["id"]))["rules"]
    assert "touch asked.txt" not in [each["pattern"] for each in left]


@pytest.mark.slow
async def test_the_owner_inspects_logs_problems_risks_rights_and_extensions(hall: Hall, owner: RawSocket) -> None:
    await ask(owner, "hi")
    log = await owner.result("logs.tail", level="info", limit=20)
    assert log["path"].endswith(".log")
    assert "secret-key-0123456789" not in json.dumps(log)
    doctor = await owner.result("doctor")
    assert all(finding["what"] and finding["todo"] for finding in doctor["findings"])
    assert "gateway" not in [finding["area"] for finding in doctor["findings"]]
    assert (await owner.result("doctor", fix=True))["fixed"]
    assert not [each for each in (await owner.result("doctor"))["findings"] if each["fixable"]]
    hall.home.config_file.chmod(0o644)
    risks = await owner.result("security.audit")
    assert any(finding["fixable"] for finding in risks["findings"])
    fixed = await owner.result("security.audit", fix=True)
    assert fixed["fixed"]
    assert not any(finding["fixable"] for finding in fixed["findings"])
    rows = (await owner.result("security.matrix"))["rows"]
    assert {row["agent"] for row in rows} == {"main"}
    assert {row["decision"] for row in rows} >= {"allow", "deny"}
    assert (await owner.result("plugins.list"))["plugins"] == []
    assert (await owner.result("mcp.list"))["servers"] == []
    assert isinstance((await owner.result("channels.list"))["channels"], list)
    named = (await owner.result("sessions.introduce"))["commandRows"]
    assert next(row for row in named if row["name"] == "status")["summary"]


async def test_servers_of_mcp_are_listed_without_their_secrets(hall: Hall, owner: RawSocket) -> None:
    secret = "abcdefghijklmnop0123"
    server = {"url": f"https://tools.example/mcp?key={secret}", "headers": {"Authorization": f"Bearer {secret}"}}
    hash_ = (await owner.result("config.get"))["hash"]
    change = {"key": "mcp.servers.tools", "value": server}
    await owner.result("config.patch", baseHash=hash_, changes=[change])
    [listed] = (await owner.result("mcp.list"))["servers"]
    assert (listed["name"], listed["target"]) == ("tools", "https://tools.example/mcp")
    assert secret not in json.dumps(listed)


GUARDED = {
    "workspace.list": {},
    "workspace.read": {"path": "AGENTS.md"},
    "workspace.write": {"path": "AGENTS.md", "text": "x"},
    "logs.tail": {},
    "doctor": {},
    "security.audit": {},
    "security.matrix": {},
    "plugins.list": {},
    "mcp.list": {},
    "channels.list": {},
    "rules.list": {},
    "rules.add": {"pattern": "ls"},
    "rules.remove": {"id": "x"},
    "approvals.history": {},
}


async def test_a_guest_may_do_none_of_this(hall: Hall) -> None:
    async with raw_socket(hall, hall.token(Scope.WRITE)) as guest:
        for method, params in GUARDED.items():
            assert (await guest.call(method, **params))["error"]["code"] == "forbidden", method
    async with raw_socket(hall, hall.token(Scope.READ)) as reader:
        for method in ("sessions.fork", "sessions.archive"):
            assert (await reader.call(method))["error"]["code"] == "forbidden", method


@pytest.mark.slow
async def test_the_newest_messages_of_a_long_session_are_the_same_as_of_the_whole_one(
    hall: Hall, owner: RawSocket
) -> None:
    key = SessionKey.parse("agent:main:chat-long")
    home = load_home(hall.home, environment=hall.environment)
    text = "x" * 4_000
    entries = [
        MessageAdded(message)
        for number in range(200)
        for message in (UserMessage((Text(f"q{number} {text}"),)), AssistantMessage((Text(f"a{number} {text}"),)))
    ]
    store = open_sessions(home, key.agent)
    assert store.begin(key, entries)
    pages = [await owner.result("chat.history", sessionKey=key.text, limit=60, skip=skip) for skip in range(0, 400, 60)]
    assert {page["total"] for page in pages} == {400}
    ids = [entry["id"] for page in reversed(pages) for entry in page["entries"]]
    session = store.peek(key)
    assert session is not None
    assert ids == [each.id for each in store.read(session.id)[1].path]
