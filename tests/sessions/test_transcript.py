"""A transcript on disk: what was written is there, whatever happens to the file."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.core.errors import RetinueError, SessionError
from retinue.core.messages import ToolCall
from retinue.sessions.entries import Body, Compacted, EntryId, MessageAdded, Noted, TranscriptEntry
from retinue.sessions.jsonl.codec import encode_line
from retinue.sessions.jsonl.lines import BLOCK
from retinue.sessions.transcript import Transcript, read_whole
from tests.sessions.builders import BODIES, START, answer, header, result, stamps, start, texts, user

ROOT = Path(__file__).parents[2]


def reopen(transcript: Transcript, prefix: str = "n") -> Transcript:
    return Transcript.open(transcript.path, stamps(prefix))


def add_line(path: Path, entry: TranscriptEntry) -> None:
    with path.open("ab") as file:
        file.write(encode_line(entry))


def asides(transcript: Transcript) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in transcript.path.parent.glob("*.torn.*")}


def test_what_was_said_is_there_again(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    for text in ("Hello", "Hi", "How are you?"):
        transcript.append(user(text))
    again = reopen(transcript)
    assert texts(again) == ["Hello", "Hi", "How are you?"]
    assert again.header == header()
    assert again.tree.path == transcript.tree.path
    assert again.notes == []


@given(st.lists(BODIES, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_live_view_and_the_read_one_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[Body]
) -> None:
    transcript = start(tmp_path_factory.mktemp("t"))
    for body in bodies:
        transcript.append(body)
    again = reopen(transcript)
    assert again.tree.path == transcript.tree.path
    assert again.messages == transcript.messages
    assert again.tree.summary == transcript.tree.summary
    assert again.tree.kept == transcript.tree.kept
    assert again.tree.started_calls == transcript.tree.started_calls


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        transcript = start(tmp_path)
    finally:
        os.umask(before)
    assert transcript.path.stat().st_mode & 0o777 == 0o600
    transcript.path.chmod(0o644)
    reopen(transcript)
    assert transcript.path.stat().st_mode & 0o777 == 0o600


def test_a_line_torn_at_any_byte_is_cut_off_and_kept(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(user("kept"))
    whole = transcript.path.read_bytes()
    transcript.append(user("torn – ähm"))
    last = transcript.path.read_bytes()[len(whole) :]
    for length in range(len(last)):
        transcript.path.write_bytes(whole + last[:length])
        again = reopen(transcript)
        assert texts(again)[:1] == ["kept"]
        again.append(user("next"))
        if length == len(last) - 1:  # only the newline was missing
            assert texts(reopen(again)) == ["kept", "torn – ähm", "next"]
            assert asides(again) == {}
        else:
            assert texts(reopen(again)) == ["kept", "next"]
            assert asides(again) == ({"s1.jsonl.torn.1": last[:length]} if length else {})
            assert len(again.notes) == (1 if length else 0)
        for aside in tmp_path.glob("*.torn.*"):
            aside.unlink()


@pytest.mark.parametrize("rubbish", [b"\x00" * 5000, b"\xff\xfe{{", b"{" * 3000, b'{"type":"message"', b"\x00", b" "])
def test_rubbish_at_the_end_is_cut_off_and_kept(tmp_path: Path, rubbish: bytes) -> None:
    transcript = start(tmp_path)
    transcript.append(user("kept"))
    with transcript.path.open("ab") as file:
        file.write(rubbish)
    again = reopen(transcript)
    assert texts(again) == ["kept"]
    assert list(asides(again).values()) == [rubbish]
    assert "torn" in again.notes[0]


def test_a_second_tear_gets_a_second_file(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    for rubbish in (b"one", b"two"):
        with transcript.path.open("ab") as file:
            file.write(rubbish)
        reopen(transcript)
    assert asides(transcript) == {"s1.jsonl.torn.1": b"one", "s1.jsonl.torn.2": b"two"}


@pytest.mark.parametrize("rubbish", [b"garbage\n", b"\x00" * 700_000 + b"\n", b"[]\n", b"\n"])
def test_a_bad_line_in_the_middle_costs_only_itself(tmp_path: Path, rubbish: bytes) -> None:
    transcript = start(tmp_path)
    transcript.append(user("before"))
    with transcript.path.open("ab") as file:
        file.write(rubbish)
    transcript.append(user("after"))
    again = reopen(transcript)
    assert texts(again) == ["before", "after"]
    assert rubbish in transcript.path.read_bytes()
    assert len(again.notes) == (0 if rubbish == b"\n" else 1)


def test_an_entry_whose_parent_is_missing_is_reported_and_read(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    for text in ("one", "two", "three"):
        transcript.append(user(text))
    lines = transcript.path.read_bytes().splitlines(keepends=True)
    entry = json.loads(lines[3])
    lines[3] = json.dumps(entry | {"parentId": "damaged"}).encode() + b"\n"
    transcript.path.write_bytes(b"".join(lines))
    again = reopen(transcript)
    assert texts(again) == ["one", "two", "three"]
    [note] = again.notes
    assert entry["id"] in note
    assert "parent" in note


def test_an_unreadable_entry_does_not_cut_off_what_came_before_it(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    for text in ("one", "two", "three", "four"):
        transcript.append(user(text))
    lines = transcript.path.read_bytes().splitlines(keepends=True)
    lines[2] = b"#" * (len(lines[2]) - 1) + b"\n"
    transcript.path.write_bytes(b"".join(lines))
    assert texts(reopen(transcript)) == ["one", "three", "four"]


def test_a_lost_header_does_not_cost_the_conversation(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(user("still here"))
    data = bytearray(transcript.path.read_bytes())
    data[0] = 0
    transcript.path.write_bytes(data)
    again = reopen(transcript)
    assert (again.header, texts(again)) == (None, ["still here"])


def test_a_line_that_stands_twice_counts_once(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    add_line(transcript.path, transcript.append(user("once")))
    assert texts(reopen(transcript)) == ["once"]


def test_old_transcripts_without_ids_are_lists(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    lines: list[dict[str, object]] = [{"type": "session", "id": "old"}]
    lines += [{"type": "message", "message": {"role": "user", "content": text}} for text in ("one", "two")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert texts(Transcript.open(path, stamps())) == ["one", "two"]


def test_a_branch_leaves_the_other_one_in_the_file(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(user("question"))
    fork = transcript.append(answer("first try"))
    transcript.append(user("no"))
    assert fork.parent is not None
    transcript.append(answer("second try"), parent=fork.parent)
    transcript.append(user("yes"))
    for view in (transcript, reopen(transcript)):
        assert texts(view) == ["question", "second try", "yes"]
    assert b"first try" in transcript.path.read_bytes()


def test_a_branch_cannot_start_nowhere(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    with pytest.raises(SessionError, match="no entry 'x'"):
        transcript.append(user("?"), parent=EntryId("x"))


def test_after_a_compaction_the_summary_stands_for_what_came_before(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    for text in ("old", "older"):
        transcript.append(user(text))
    kept = transcript.append(user("recent"))
    compaction = transcript.append(Compacted("They said hello.", kept.id, 900))
    transcript.append(user("new"))
    for view in (transcript, reopen(transcript)):
        assert texts(view) == ["recent", "new"]
        assert view.tree.summary == Compacted("They said hello.", kept.id, 900)
        assert view.tree.compaction == compaction
        assert [entry.id for entry in view.tree.kept] == [kept.id, "e5"]
    assert [entry.id for entry in read_whole(transcript.path)[1].path] == ["e1", "e2", "e3", "e4", "e5"]


def test_a_compaction_can_be_undone_by_branching_before_it(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(user("old"))
    last = transcript.append(user("recent"))
    transcript.append(Compacted("S", last.id, 9))
    transcript.append(user("back"), parent=last.id)
    assert texts(reopen(transcript)) == ["old", "recent", "back"]
    assert reopen(transcript).tree.summary is None


def test_a_compaction_whose_first_entry_is_gone_keeps_what_came_after(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(user("old"))
    transcript.append(Compacted("S", EntryId("gone"), 9))
    transcript.append(user("new"))
    assert texts(reopen(transcript)) == ["new"]


def long_transcript(folder: Path, *, blocks: int, compact: bool) -> Transcript:
    """Several blocks of messages; the compaction, if any, stands in the last one."""
    transcript = start(folder)
    lines = []
    parent: EntryId | None = None
    for number in range(blocks * 10):
        lines.append(TranscriptEntry(EntryId(f"m{number}"), parent, START, user(f"{number} " + "x" * (BLOCK // 10))))
        parent = lines[-1].id
    if compact:
        lines.append(TranscriptEntry(EntryId("c"), parent, START, Compacted("S", EntryId(f"m{blocks * 10 - 2}"), 9)))
    with transcript.path.open("ab") as file:
        file.write(b"".join(map(encode_line, lines)))
    return transcript


def test_a_long_transcript_is_read_back_to_its_last_compaction_only(tmp_path: Path) -> None:
    transcript = long_transcript(tmp_path, blocks=12, compact=True)
    again = reopen(transcript)
    assert [text.split()[0] for text in texts(again)] == ["118", "119"]
    assert again.header == header()
    assert again.bytes_read < transcript.path.stat().st_size / 6
    again.append(user("more"))
    assert texts(reopen(transcript))[-1] == "more"


def test_without_a_compaction_everything_is_read(tmp_path: Path) -> None:
    again = reopen(long_transcript(tmp_path, blocks=4, compact=False))
    assert len(again.messages) == 40
    assert again.bytes_read == again.path.stat().st_size


def test_reading_stops_at_the_limit_and_says_so(tmp_path: Path) -> None:
    transcript = long_transcript(tmp_path, blocks=12, compact=False)
    again = Transcript.open(transcript.path, stamps("n"), limit=2 * BLOCK)
    assert 0 < len(again.messages) < 60
    assert again.messages[-1].text.startswith("119 ")
    assert "never compacted" in again.notes[0]
    assert again.bytes_read < transcript.path.stat().st_size / 2
    again.append(user("back to the start"), parent=EntryId("m0"))
    assert [text[:4] for text in texts(again)] == ["0 xx", "back"]


def test_a_partial_history_begins_with_a_person(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(user("x" * 3 * BLOCK))
    transcript.append(answer("", ToolCall("1", "ls", {})))
    transcript.append(result("1"))
    transcript.append(user("next"))
    assert texts(Transcript.open(transcript.path, stamps(), limit=BLOCK)) == ["next"]


def test_a_warm_turn_reads_nothing_again(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    for number in range(200):
        transcript.append(user(f"message {number}"))
        assert len(transcript.messages) == number + 1
    assert transcript.bytes_read == 0
    assert transcript.messages is transcript.messages


def test_an_open_transcript_takes_in_what_others_wrote(tmp_path: Path) -> None:
    one = start(tmp_path)
    other = Transcript.open(one.path, stamps("o"))
    one.append(user("from one"))
    other.append(user("from other"))
    one.refresh()
    assert texts(one) == texts(other) == ["from one", "from other"]
    size = one.path.stat().st_size
    assert one.bytes_read < size
    assert [entry.parent for entry in one.tree.path] == [None, "e1"]


def test_what_a_dead_writer_left_does_not_swallow_the_next_line(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(user("before"))
    with transcript.path.open("ab") as file:
        file.write(b'{"type":"mess')
    transcript.append(user("after"))
    assert texts(reopen(transcript)) == texts(transcript) == ["before", "after"]
    assert b'{"type":"mess\n' in transcript.path.read_bytes()


def test_a_transcript_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(user("old"))
    transcript.path.rename(tmp_path / "kept")
    start(tmp_path, prefix="f").append(user("fresh"))
    transcript.append(user("more"))
    assert texts(transcript) == ["fresh", "more"]


def test_an_archived_transcript_is_not_written_to(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.path.rename(tmp_path / "s1.jsonl.reset.x")
    for attempt in (lambda: transcript.append(user("lost?")), transcript.refresh):
        with pytest.raises(SessionError, match="Open the session again"):
            attempt()


WRITER = """
import sys
from pathlib import Path
from retinue.core.clock import SystemClock
from retinue.core.messages import said
from retinue.sessions.entries import MessageAdded
from retinue.sessions.transcript import EntryStamps, Transcript
transcript = Transcript.open(Path(sys.argv[1]), EntryStamps(SystemClock()))
for number in range(100):
    transcript.append(MessageAdded(said(f"{sys.argv[2]}{number} " + "x" * 3000)))
"""


@pytest.mark.slow
def test_two_processes_may_write_at_once(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(transcript.path), name]) for name in ("a", "b")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    said = [text.split()[0] for text in texts(reopen(transcript))]
    assert [text for text in said if text.startswith("a")] == [f"a{number}" for number in range(100)]
    assert [text for text in said if text.startswith("b")] == [f"b{number}" for number in range(100)]
    assert len(said) == 200


KILLED = WRITER.replace("range(100)", "range(10**9)").replace(
    "transcript.append(", "print(number, flush=True) or transcript.append("
)


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(transcript.path), "m"], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        begun = 0
        while begun < 40:
            begun = int(writer.stdout.readline())
        writer.kill()
    said = [text.split()[0] for text in texts(reopen(transcript))]
    assert said == [f"m{number}" for number in range(len(said))]
    assert len(said) >= 40


@pytest.mark.slow
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(user("kept"))
    before = transcript.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    script = f"""
import resource, signal, sys
from pathlib import Path
from tests.sessions.builders import stamps, user, texts
from retinue.sessions.transcript import Transcript
from retinue.storage.files import DiskFull
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
transcript = Transcript.open(Path({str(transcript.path)!r}), stamps("n"))
resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 50}, {limits[1]}))
for attempt in range(2):
    try:
        transcript.append(user("too long for what is left" * 10))
    except DiskFull as error:
        print(error)
assert texts(transcript) == ["kept"]
resource.setrlimit(resource.RLIMIT_FSIZE, {limits})
transcript.append(user("space is back"))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("the file size limit is reached") == 2
    assert transcript.path.read_bytes().startswith(before)
    assert texts(reopen(transcript)) == ["kept", "space is back"]


@pytest.mark.parametrize("kind", ["folder", "link", "fifo", "missing"])
def test_what_is_no_transcript_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s.jsonl"
    match kind:
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(start(tmp_path).path)
        case "fifo":
            os.mkfifo(path)
    with pytest.raises(RetinueError, match=r"s\.jsonl"):
        Transcript.open(path, stamps())


def test_an_existing_transcript_is_not_started_over(tmp_path: Path) -> None:
    start(tmp_path)
    with pytest.raises(RetinueError, match="exists already"):
        start(tmp_path)


def test_waiting_for_the_disk_changes_nothing_else(tmp_path: Path) -> None:
    transcript = Transcript.create(tmp_path / "d.jsonl", header("d"), [Noted("x")], stamps(durable=True))
    transcript.append(user("safe"))
    assert texts(reopen(transcript)) == ["safe"]
    assert isinstance(transcript.tree.path[1].body, MessageAdded)
