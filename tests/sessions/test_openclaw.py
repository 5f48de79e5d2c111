"""Transcripts of OpenClaw become ours: every shape, once, with theirs untouched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.core.envelope import Source
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Image, StopReason, Text, Thinking, ToolCall, ToolResult, Usage, said
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.sessions.check import check_folder
from retinue.sessions.entries import Compacted, MessageAdded, Noted
from retinue.sessions.openclaw.importer import (
    ImportOutcome,
    ImportResult,
    ImportRoute,
    find_transcripts,
    import_transcripts,
)
from retinue.sessions.repair import repair
from retinue.sessions.store import SessionStore
from retinue.sessions.transcript import Transcript, read_whole
from tests.examples import examples
from tests.sessions.builders import OBJECTS, TickingClock, stamps, texts

AGENT = AgentId("main")
ROUTE = ImportRoute((AGENT, AgentId("work")), AGENT)
HEADER = {"type": "session", "version": 3, "id": "abc", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/home/ada"}
USAGE = {
    "input": 10,
    "output": 5,
    "cacheRead": 2,
    "cacheWrite": 1,
    "totalTokens": 18,
    "cost": {"input": 0.1, "total": 0.25},
}


ODD_TIMES = {"early": "0001-01-01T00:00:00+14:00", "late": "9999-12-31T23:59:59-14:00", "huge": 10**400}


class CommandTarget:
    """A folder of OpenClaw's and a place for ours."""

    def __init__(self, path: Path) -> None:
        self.theirs = path / "openclaw" / "sessions"
        self.theirs.mkdir(parents=True)
        self.ours = path / "home"

    def open_store(self, agent: AgentId) -> SessionStore:
        return SessionStore(self.ours / agent / "sessions", TickingClock())

    def write(self, *lines: dict[str, Any] | bytes, name: str = "abc.jsonl") -> Path:
        path = self.theirs / name
        path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines))
        return path

    def index(self, rows: dict[str, Any]) -> None:
        (self.theirs / "sessions.json").write_text(json.dumps(rows))

    def run(self, path: Path | None = None, route: ImportRoute = ROUTE, *, dry_run: bool = False) -> list[ImportResult]:
        return import_transcripts(find_transcripts(path or self.theirs), route, self.open_store, dry_run=dry_run)

    def view(self, done: ImportResult) -> Transcript:
        assert done.key is not None, done
        assert done.session is not None
        return Transcript.open(self.open_store(done.key.agent).path_of(done.session), stamps("x"))


@pytest.fixture
def desk(tmp_path: Path) -> CommandTarget:
    return CommandTarget(tmp_path)


def entry(kind: str, ident: str, parent: str | None, **rest: Any) -> dict[str, Any]:
    return {"type": kind, "id": ident, "parentId": parent, "timestamp": "2026-01-02T03:04:05.678Z", **rest}


def message(name: str, parent: str | None, role: str, content: Any, **rest: Any) -> dict[str, Any]:
    return entry("message", name, parent, message={"role": role, "content": content, **rest})


def one(desk: CommandTarget, *lines: dict[str, Any] | bytes, route: ImportRoute = ROUTE) -> Transcript:
    desk.write(HEADER, *lines)
    [done] = desk.run(route=route)
    assert done.outcome is ImportOutcome.IMPORTED, done
    return desk.view(done)


def test_a_time_beyond_the_calendar_costs_only_itself(desk: CommandTarget) -> None:
    odd = [{**message(name, None, "user", name), "timestamp": time} for name, time in ODD_TIMES.items()]
    view = one(desk, message("a", None, "user", "first"), *({**line, "parentId": "a"} for line in odd))
    assert [entry.id for entry in read_whole(view.path)[1].path][:2] == ["a", list(ODD_TIMES)[-1]]
    assert check_folder(view.path.parent).folder == ()


def test_a_mark_at_the_beginning_of_the_file_is_no_part_of_its_first_line(desk: CommandTarget) -> None:
    path = desk.write(HEADER, message("a", None, "user", "Hello"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    [done] = desk.run()
    header = desk.view(done).header
    assert (done.bad_lines, done.session) == (0, "abc")
    assert header is not None
    assert header.cwd == "/home/ada"


def test_a_transcript_of_today_is_taken_over(desk: CommandTarget) -> None:
    view = one(
        desk,
        message("a", None, "user", [{"type": "text", "text": "List it"}], timestamp=1767323045678),
        message(
            "b",
            "a",
            "assistant",
            [
                {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"},
                {"type": "text", "text": "I look."},
                {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "ls"}},
            ],
            provider="anthropic",
            model="claude",
            usage=USAGE,
            stopReason="toolUse",
        ),
        message(
            "c", "b", "toolResult", [{"type": "text", "text": "x"}], toolCallId="c1", toolName="exec", isError=True
        ),
    )
    asked, answered, got = view.messages
    assert asked == said("List it")
    assert answered == AssistantMessage(
        (Thinking("hm", "sig"), Text("I look."), ToolCall("c1", "exec", {"command": "ls"})),
        "anthropic/claude",
        Usage(10, 5, 2, 1, 0.25),
        StopReason.TOOL_CALLS,
    )
    assert got == ToolResult("c1", "exec", (Text("x"),), is_error=True, label=Label.UNTRUSTED)
    assert view.tree.kept[0].timestamp.isoformat() == "2026-01-02T03:04:05.678000+00:00"
    assert view.header is not None
    assert (view.header.id, view.header.cwd, view.header.version) == ("abc", "/home/ada", 3)


def test_old_shapes_become_new_ones(desk: CommandTarget) -> None:
    view = one(
        desk,
        message("a", None, "user", "List it"),
        message(
            "b",
            "a",
            "assistant",
            [{"type": "tool_use", "id": "c1", "name": "exec", "input": {"command": "ls"}}],
            model="gpt",
            usage={"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 2},
            stop_reason="tool_use",
        ),
        message(
            "c",
            "b",
            "user",
            [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "files"}]},
                {"type": "text", "text": "And now?"},
            ],
        ),
        message("d", "c", "assistant", [{"type": "functionCall", "id": "c2", "name": "read", "arguments": '{"p": 1}'}]),
        message("e", "d", "tool", "plain", tool_call_id="c2"),
        message("f", "e", "assistant", "Done.", stopReason="end_turn"),
    )
    assert texts(view) == ["List it", "", "files", "And now?", "", "plain", "Done."]
    asked, first, result, _, second, plain, done = view.messages
    assert isinstance(first, AssistantMessage)
    assert isinstance(done, AssistantMessage)
    assert isinstance(second, AssistantMessage)
    assert (first.calls, first.usage) == ((ToolCall("c1", "exec", {"command": "ls"}),), Usage(7, 3, 2))
    assert (first.stop, done.stop) == (StopReason.TOOL_CALLS, StopReason.END)
    assert second.calls == (ToolCall("c2", "read", {"p": 1}),)
    assert isinstance(result, ToolResult)
    assert isinstance(plain, ToolResult)
    assert (result.call_id, plain.call_id) == ("c1", "c2")
    assert repair(view.messages)[1] == ()
    assert asked.text == "List it"


@pytest.mark.parametrize(
    "picture",
    [
        {"type": "image", "data": "QUJD", "mimeType": "image/png"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
    ],
)
def test_pictures_of_every_spelling_are_kept(desk: CommandTarget, picture: dict[str, Any]) -> None:
    view = one(desk, message("a", None, "user", [{"type": "text", "text": "See"}, picture]))
    [asked] = view.messages
    assert asked.content == (Text("See"), Image("image/png", "QUJD"))


def test_a_part_of_no_known_kind_leaves_its_name(desk: CommandTarget) -> None:
    assert texts(one(desk, message("a", None, "user", [{"type": "hologram", "x": 1}, "plain"]))) == ["[hologram]plain"]


def test_a_compaction_and_what_it_keeps_are_taken_over(desk: CommandTarget) -> None:
    view = one(
        desk,
        message("a", None, "user", "old"),
        message("b", "a", "user", [{"type": "tool_result", "tool_use_id": "q", "content": "r"}, "kept"]),
        entry("compaction", "c", "b", summary="S", firstKeptEntryId="b", tokensBefore=900, details={"f": 1}),
        message("d", "c", "user", "new"),
    )
    assert view.tree.summary == Compacted("S", view.tree.kept[0].id, 900, {"f": 1}, Label.UNTRUSTED)
    assert texts(view) == ["r", "kept", "new"]


def test_lines_that_only_accompany_do_not_change_what_the_model_reads(desk: CommandTarget) -> None:
    view = one(
        desk,
        entry("model_change", "a", None, provider="gone", modelId="model-of-yesterday"),
        entry("thinking_level_change", "b", "a", thinkingLevel="high"),
        message("c", "b", "user", "Hello"),
        entry("label", "d", "c", targetId="c", label="here"),
        entry("custom", "e", "d", customType="plugin", data={"n": 1}),
        entry("custom", "f", "e", customType="plugin", data=[1]),
        entry("hologram", "g", "f", light=True),
        entry("session_info", "h", "g", name="Trip to Oslo"),
    )
    assert texts(view) == ["Hello"]
    notes = [each.body.kind for each in view.tree.path if isinstance(each.body, Noted)]
    assert notes[:5] == [
        "openclaw:model_change",
        "openclaw:thinking_level_change",
        "openclaw:label",
        "plugin",
        "plugin",
    ]
    assert '"light":true' in view.path.read_text()
    [session] = desk.open_store(AGENT).list()
    assert (session.model, session.thinking, session.label) == (None, None, "Trip to Oslo")


def test_what_the_model_read_beside_the_talk_is_read_again_but_believed_less(desk: CommandTarget) -> None:
    view = one(
        desk,
        message("a", None, "user", "Hello"),
        entry("custom_message", "b", "a", customType="plugin", content="From a plugin", display=False),
        entry("branch_summary", "c", "b", fromId="a", summary="elsewhere"),
        message("d", "c", "bashExecution", None, command="ls", output="files"),
        message("e", "d", "hookMessage", "From a hook"),
        message("f", "e", "user", "From another session", provenance={"kind": "inter_session"}),
    )
    trusts = [each.label for each in view.messages if not isinstance(each, AssistantMessage)]
    assert trusts == [Label.OWNER] + [Label.UNTRUSTED] * 4 + [Label.AGENT]
    assert "elsewhere" in texts(view)[2]
    assert texts(view)[3] == "[Ran `ls`]\nfiles"
    sources = [each.body.source for each in view.tree.kept if isinstance(each.body, MessageAdded)]
    assert sources == [Source.CHAT, Source.OTHER, Source.OTHER, Source.CHAT, Source.OTHER, Source.OTHER]


def test_labels_of_trust_are_not_believed_and_nobody_owns_a_group(desk: CommandTarget) -> None:
    view = one(
        desk,
        message("a", None, "user", "Hi"),
        message("b", "a", "toolResult", "x", toolCallId="c", label="owner"),
        entry("compaction", "c", "b", summary="S", firstKeptEntryId="a", tokensBefore=1, label="owner"),
    )
    assert [each.label for each in view.messages if not isinstance(each, AssistantMessage)][1].is_foreign
    assert view.tree.summary is not None
    assert view.tree.summary.label.is_foreign
    desk.write(HEADER | {"id": "grp"}, message("a", None, "user", "Hi", label="owner"), name="grp.jsonl")
    desk.index({"agent:main:telegram:group:-100": {"sessionId": "grp"}})
    done = next(each for each in desk.run() if each.session == "grp")
    [heard] = desk.view(done).messages
    assert not isinstance(heard, AssistantMessage)
    assert heard.label.is_foreign


def test_branches_and_the_first_format_keep_their_order(desk: CommandTarget) -> None:
    view = one(
        desk,
        message("a", None, "user", "root"),
        message("b", "a", "assistant", "left"),
        message("c", "a", "assistant", "right"),
    )
    assert texts(view) == ["root", "right"]
    first: list[dict[str, Any]] = [
        {"type": "session", "id": "old", "timestamp": "2025-01-01T00:00:00Z"},
        {"type": "message", "timestamp": "2025-01-01T00:00:01Z", "message": {"role": "user", "content": "one"}},
        {"type": "message", "message": {"role": "user", "content": "two", "timestamp": 1735689602000}},
        {"type": "compaction", "summary": "S", "firstKeptEntryIndex": 2, "tokensBefore": 5},
        {"type": "message", "message": {"role": "user", "content": "three"}},
    ]
    path = desk.write(*first, name="old.jsonl")
    [done] = desk.run(path)
    assert texts(desk.view(done)) == ["two", "three"]
    times = [each.timestamp.second for each in desk.view(done).tree.path]
    assert times == [1, 2, 2, 2, 2]


def test_keys_and_choices_come_from_the_index(desk: CommandTarget) -> None:
    for name in ("s-main", "s-group-topic-7", "s-lost"):
        desk.write(
            HEADER | {"id": name.removesuffix("-topic-7")}, message("a", None, "user", name), name=f"{name}.jsonl"
        )
    desk.index(
        {
            "agent:main:main": {
                "sessionId": "s-main",
                "providerOverride": "anthropic",
                "modelOverride": "claude",
                "modelOverrideSource": "user",
                "thinkingLevel": "high",
                "displayName": "Ada",
            },
            "agent:work:telegram:group:-1:topic:7": {
                "sessionId": "s-group",
                "sessionFile": "/home/ada/.openclaw/agents/work/sessions/s-group-topic-7.jsonl",
                "providerOverride": "openai",
                "modelOverride": "auto-picked",
                "modelOverrideSource": "auto",
            },
            "not a key": {"sessionId": "s-lost"},
        }
    )
    done = {each.session: each for each in desk.run()}
    assert {name: str(each.key) for name, each in done.items()} == {
        "s-main": "agent:main:main",
        "s-group-topic-7": "agent:work:telegram:group:-1:thread:7",
        "s-lost": "agent:main:imported:s-lost",
    }
    main = desk.open_store(AGENT).find(SessionKey.main(AGENT))
    assert main is not None
    assert (main.model, main.thinking, main.label) == (ModelRef("anthropic", "claude"), ReasoningEffort.HIGH, "Ada")
    [group] = desk.open_store(AgentId("work")).list()
    assert group.model is None
    assert check_folder(desk.open_store(AGENT).folder).findings == ()


def test_everything_can_go_to_one_agent_or_one_key(desk: CommandTarget) -> None:
    desk.write(HEADER, message("a", None, "user", "Hi"))
    desk.index({"agent:old:telegram:direct:42": {"sessionId": "abc"}})
    [refused] = desk.run()
    assert (refused.outcome, "'old', which is not configured" in refused.reason) == (ImportOutcome.FAILED, True)
    [done] = desk.run(route=ImportRoute((AGENT,), AGENT, agent=AgentId("work")), dry_run=True)
    assert str(done.key) == "agent:work:telegram:direct:42"
    [done] = desk.run(route=ImportRoute((AGENT,), AGENT, key=SessionKey.parse("ideas")))
    assert str(done.key) == "agent:main:ideas"


def test_importing_twice_adds_nothing(desk: CommandTarget) -> None:
    desk.write(HEADER, message("a", None, "user", "Hi"))
    desk.index({"agent:main:main": {"sessionId": "abc"}})
    [first] = desk.run()
    folder = desk.open_store(AGENT).folder
    before = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    [again] = desk.run()
    assert (first.outcome, again.outcome) == (ImportOutcome.IMPORTED, ImportOutcome.ALREADY)
    assert {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    desk.open_store(AGENT).reset(SessionKey.main(AGENT))
    assert desk.run()[0].outcome is ImportOutcome.ALREADY


def test_a_key_that_is_taken_is_not_taken_away(desk: CommandTarget) -> None:
    store = desk.open_store(AGENT)
    mine = store.open(SessionKey.main(AGENT))
    mine.append(MessageAdded(said("Mine")))
    for name in ("abc", "def"):
        desk.write(HEADER | {"id": name}, message("a", None, "user", name), name=f"{name}.jsonl")
    desk.index({"agent:main:main": {"sessionId": "abc"}, "agent:main:Main": {"sessionId": "def"}})
    keys = [str(each.key) for each in desk.run()]
    assert keys == ["agent:main:imported:abc", "agent:main:imported:def"]
    assert texts(desk.open_store(AGENT).open(SessionKey.main(AGENT))) == ["Mine"]


def test_the_original_stays_and_ours_is_private(desk: CommandTarget) -> None:
    path = desk.write(HEADER, message("a", None, "user", "Hi"), b"rubbish")
    path.chmod(0o444)
    before, touched = path.read_bytes(), path.stat().st_mtime_ns
    [done] = desk.run()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, touched)
    assert desk.view(done).path.stat().st_mode & 0o777 == 0o600
    assert not list(desk.open_store(AGENT).folder.glob(".import-*"))


def test_a_dry_run_writes_nothing(desk: CommandTarget) -> None:
    desk.write(HEADER, message("a", None, "user", "Hi"), b"rubbish")
    [done] = desk.run(dry_run=True)
    assert (done.outcome, done.messages, done.bad_lines) == (ImportOutcome.IMPORTED, 1, 1)
    assert not desk.ours.exists()


def test_bad_lines_cost_only_themselves(desk: CommandTarget) -> None:
    one_line = (
        json.dumps(message("c", "b", "user", "two")).encode() + json.dumps(message("d", "c", "user", "three")).encode()
    )
    path = desk.write(
        HEADER,
        message("a", None, "user", "one"),
        b"\0" * 50,
        b'{"type": "message", "id": "b"',
        b'{"x": NaN}',
        b"[1]",
        b"[" * 100_000,
        one_line,
        message("a", None, "user", "the same id again"),
    )
    with path.open("ab") as file:
        file.write(json.dumps(message("e", "d", "user", "four")).encode() + b"\n" + b'{"type": "mess')
    [done] = desk.run()
    assert texts(desk.view(done)) == ["one", "two", "three", "four"]
    assert done.bad_lines == 6
    assert len(done.problems) == 5
    assert done.problems[0].startswith("byte ")


def test_a_last_line_without_its_newline_counts(desk: CommandTarget) -> None:
    path = desk.write(HEADER)
    with path.open("ab") as file:
        file.write(json.dumps(message("a", None, "user", "Hi")).encode())
    assert texts(desk.view(desk.run()[0])) == ["Hi"]


def empty(path: Path) -> None:
    path.write_bytes(b"")


def fill_with_zeros(path: Path) -> None:
    path.write_bytes(b"\0" * 1000)


def keep_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "outcome"),
    [
        (empty, ImportOutcome.EMPTY),
        (fill_with_zeros, ImportOutcome.EMPTY),
        (keep_the_header, ImportOutcome.EMPTY),
        (make_folder, ImportOutcome.FAILED),
    ],
)
def test_a_transcript_with_nothing_in_it_is_told_and_not_made(
    desk: CommandTarget, damage: Callable[[Path], None], outcome: ImportOutcome
) -> None:
    damage(desk.write(HEADER, message("a", None, "user", "Hi")))
    desk.write(HEADER | {"id": "good"}, message("a", None, "user", "Hi"), name="good.jsonl")
    done = {each.path.name: each for each in desk.run()}
    assert done["abc.jsonl"].outcome is outcome
    assert done["abc.jsonl"].reason
    assert done["good.jsonl"].outcome is ImportOutcome.IMPORTED
    assert [path.name for path in desk.open_store(AGENT).folder.glob("*.jsonl")] == ["good.jsonl"]


def test_a_newer_format_is_read_as_far_as_it_is_known(desk: CommandTarget) -> None:
    desk.write(HEADER | {"version": 9}, message("a", None, "user", "Hi"), entry("hologram", "b", "a", light=1))
    [done] = desk.run()
    assert texts(desk.view(done)) == ["Hi"]


@pytest.mark.parametrize("name", ["../../evil", "", "a b", "/etc/passwd"])
def test_an_id_cannot_lead_out_of_the_folder(desk: CommandTarget, name: str) -> None:
    desk.write(HEADER | {"id": name}, message("a", None, "user", "Hi"), name="x y.jsonl")
    [done] = desk.run()
    assert desk.view(done).path.parent == desk.open_store(AGENT).folder
    assert desk.run()[0].outcome is ImportOutcome.ALREADY


def test_a_transcript_of_ours_that_lost_its_header_comes_back(desk: CommandTarget) -> None:
    store = desk.open_store(AGENT)
    transcript = store.open(SessionKey.parse("ideas"))
    transcript.append(MessageAdded(said("Precious")))
    store.find(SessionKey.parse("ideas"))
    broken = b"#" + transcript.path.read_bytes()
    transcript.path.write_bytes(broken)
    route = ImportRoute((AGENT,), AGENT, key=SessionKey.parse("ideas"))
    [done] = desk.run(transcript.path, route)
    assert (done.outcome, str(done.key)) == (ImportOutcome.IMPORTED, "agent:main:ideas")
    assert texts(desk.open_store(AGENT).open(SessionKey.parse("ideas"))) == ["Precious"]
    assert transcript.path.read_bytes() == broken
    assert desk.run(transcript.path, route)[0].outcome is ImportOutcome.ALREADY


def test_a_whole_home_is_searched(desk: CommandTarget, tmp_path: Path) -> None:
    folder = tmp_path / "claw" / "agents" / "work" / "sessions"
    folder.mkdir(parents=True)
    desk.write(HEADER, message("a", None, "user", "Hi")).rename(folder / "abc.jsonl")
    (folder / "sessions.json").write_text(json.dumps({"agent:work:main": {"sessionId": "abc"}}))
    for place in (tmp_path / "claw", folder.parent, folder, folder / "abc.jsonl"):
        [found] = find_transcripts(place)
        assert (found.path.name, found.key) == ("abc.jsonl", "agent:work:main")
    with pytest.raises(UsageError, match="no transcripts"):
        find_transcripts(desk.theirs)
    with pytest.raises(UsageError, match="no file or folder"):
        find_transcripts(tmp_path / "nowhere")


def test_an_index_that_cannot_be_read_costs_the_keys_only(desk: CommandTarget) -> None:
    desk.write(HEADER, message("a", None, "user", "Hi"))
    (desk.theirs / "sessions.json").write_text("{")
    assert [str(each.key) for each in desk.run()] == ["agent:main:imported:abc"]


JSON_LINES = st.lists(
    st.one_of(
        OBJECTS,
        st.builds(
            lambda kind, rest, content, role: {"type": kind, **rest, "message": {"role": role, "content": content}},
            st.sampled_from(["message", "compaction", "custom", "custom_message", "label", "session", "session_info"]),
            OBJECTS,
            st.text(max_size=5) | st.lists(OBJECTS, max_size=2) | st.none(),
            st.sampled_from(["user", "assistant", "toolResult", "tool", "custom", "system"]),
        ),
    ).map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=30),
    max_size=8,
)


@pytest.mark.slow
@given(JSON_LINES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150), deadline=None)
def test_nothing_is_fatal(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    desk = CommandTarget(tmp_path_factory.mktemp("d"))
    desk.write(HEADER, *lines)
    [done] = desk.run()
    assert done.outcome in (ImportOutcome.IMPORTED, ImportOutcome.EMPTY)
    if done.outcome is ImportOutcome.IMPORTED:
        header, tree = read_whole(desk.view(done).path)
        assert header is not None
        assert tree.path
        repair(tree.messages)
        assert check_folder(desk.open_store(AGENT).folder).problems == 0
