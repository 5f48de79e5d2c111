"""Looking over transcripts: every damage is told, none is made, and what can be put right costs no byte."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from retinue.core.keys import AgentId, SessionKey
from retinue.core.messages import ToolCall
from retinue.sessions.check import CheckReport, Remedy, TranscriptFault, apply_fixes, check_folder, check_transcript
from retinue.sessions.entries import CallStarted, Interrupted
from retinue.sessions.jsonl.lines import BLOCK, scan_lines
from retinue.sessions.store import SessionStore
from retinue.sessions.transcript import Transcript
from retinue.storage.files import LinkRefused
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import SessionLease
from tests.sessions.builders import MAIN, TickingClock, answer, counting, stamps, texts, user

IDEAS = SessionKey.parse("ideas")


@pytest.fixture
def home(tmp_path: Path) -> HomePaths:
    return HomePaths(tmp_path / "home")


@pytest.fixture
def store(home: HomePaths) -> SessionStore:
    return make_store(home)


def make_store(home: HomePaths, prefix: str = "") -> SessionStore:
    return SessionStore(
        home.sessions(AgentId("main")),
        TickingClock(),
        ids=counting(f"{prefix}e").__next__,
        session_ids=counting(f"{prefix}s").__next__,
    )


def talk(store: SessionStore, key: SessionKey = MAIN) -> Path:
    transcript = store.open(key)
    transcript.append(user("Hello"))
    transcript.append(answer("Hi"))
    store.find(key)
    return transcript.path


def faults(report: CheckReport) -> list[TranscriptFault]:
    return [finding.fault for finding in report.findings]


def contents(folder: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


def fix(report: CheckReport, store: SessionStore, home: HomePaths) -> tuple[str, ...]:
    return apply_fixes(report, store, partial(SessionLease, home))


def test_healthy_transcripts_have_nothing_to_tell(store: SessionStore) -> None:
    talk(store)
    talk(store, IDEAS)
    report = check_folder(store.folder)
    assert report.findings == ()
    assert [(checked.messages, checked.lines) for checked in report.transcripts] == [(2, 3), (2, 3)]
    assert check_folder(store.folder / "nowhere") == CheckReport()


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def append(data: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with path.open("ab") as file:
            file.write(data)

    return damage


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(b"\n", data.index(b"\n") + 1) - 1  # the brace that ends the second line
    data[at] ^= 0x40
    path.write_bytes(data)


def break_the_header(path: Path) -> None:
    path.write_bytes(b"#" + path.read_bytes())


def bury_the_header(path: Path) -> None:
    path.write_bytes(b"rubbish\n" + path.read_bytes())


def zero_the_middle(path: Path) -> None:
    head, middle, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + b"\0" * (len(middle) - 1) + b"\n" + b"".join(rest))


def join_two_lines(path: Path) -> None:
    head, one, two, *rest = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([head, one + two, *rest, b""]))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def fill_with_zeros(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def come_from_the_future(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"version":3', b'"version":9', 1))
    append(b'{"type":"hologram","id":"h","parentId":null,"timestamp":"2030-01-01T00:00:00Z"}\n')(path)


def open_to_all(path: Path) -> None:
    path.chmod(0o644)


DAMAGES: list[tuple[Callable[[Path], None], set[TranscriptFault]]] = [
    (tear, {TranscriptFault.TORN, TranscriptFault.INDEX}),
    (append(b"\0" * 100), {TranscriptFault.TORN}),
    (append(b"\xff\xfe rubbish"), {TranscriptFault.TORN}),
    (append(b'{"type":"custom","customType":"x"}'), {TranscriptFault.TORN}),
    (append(b"{} {}\n"), {TranscriptFault.UNREADABLE}),
    (append(b"[1, 2]\n\n\0\0\n"), {TranscriptFault.UNREADABLE}),
    (flip_a_bit, {TranscriptFault.UNREADABLE, TranscriptFault.INDEX}),
    (zero_the_middle, {TranscriptFault.UNREADABLE, TranscriptFault.INDEX}),
    (join_two_lines, {TranscriptFault.UNREADABLE, TranscriptFault.INDEX}),
    (break_the_header, {TranscriptFault.UNREADABLE, TranscriptFault.NO_HEADER}),
    (bury_the_header, {TranscriptFault.UNREADABLE, TranscriptFault.NO_HEADER}),
    (fill_with_zeros, {TranscriptFault.TORN, TranscriptFault.NO_HEADER}),
    (empty, {TranscriptFault.EMPTY}),
    (make_folder, {TranscriptFault.UNOPENABLE}),
    (link, {TranscriptFault.UNOPENABLE}),
    (come_from_the_future, {TranscriptFault.NEWER, TranscriptFault.UNKNOWN}),
    (open_to_all, {TranscriptFault.PERMISSIONS}),
]


@pytest.mark.parametrize(("damage", "expected"), DAMAGES)
def test_every_damage_is_told_and_nothing_is_changed(
    store: SessionStore, damage: Callable[[Path], None], expected: set[TranscriptFault]
) -> None:
    path = talk(store)
    talk(store, IDEAS)
    damage(path)
    before = contents(store.folder)
    report = check_folder(store.folder)
    assert set(faults(report)) == expected
    assert contents(store.folder) == before
    assert any(checked.messages == 2 and not checked.findings for checked in report.transcripts)


REPAIRED = {TranscriptFault.TORN, TranscriptFault.INDEX, TranscriptFault.PERMISSIONS}


@pytest.mark.parametrize(("damage", "expected"), [pair for pair in DAMAGES if pair[0] is not link])
def test_fixing_keeps_the_bytes_and_both_sessions_go_on(
    store: SessionStore, home: HomePaths, damage: Callable[[Path], None], expected: set[TranscriptFault]
) -> None:
    path = talk(store)
    talk(store, IDEAS)
    damage(path)
    damaged = path.read_bytes() if path.is_file() else b""
    again = make_store(home, "n")
    fix(check_folder(store.folder), again, home)
    left = set(faults(check_folder(store.folder))) - {TranscriptFault.LEFTOVER}
    assert left == ({TranscriptFault.EMPTY} if damage is fill_with_zeros else expected - REPAIRED)
    kept = b"".join(data for name, data in contents(store.folder).items() if data and name.startswith(path.name))
    assert all(line in kept for line in damaged.split(b"\n"))
    for key in (MAIN, IDEAS):
        again.open(key).append(user("Still here?"))
        assert texts(make_store(home, "m").open(key))[-1] == "Still here?"


def test_a_transcript_behind_a_link_is_an_explicit_error(store: SessionStore, home: HomePaths) -> None:
    link(talk(store))
    with pytest.raises(LinkRefused, match=r"s1\.jsonl"):
        make_store(home, "n").open(MAIN)


def test_what_is_found_is_said_in_words(store: SessionStore) -> None:
    path = talk(store)
    append(b'{"a":1}{"b":2}\n' + b"\0\0\0\n" + b"nonsense\n" * 3 + b"\0" * 2000)(path)
    told = {finding.fault: finding.text for finding in check_transcript(path).findings}
    unreadable = told[TranscriptFault.UNREADABLE]
    assert unreadable.startswith("5 lines cannot be read, at byte ")
    assert "(more than one object)" in unreadable
    assert "(only NUL bytes)" in unreadable
    assert unreadable.count(" byte ") == 3
    assert told[TranscriptFault.TORN] == "It ends with 2,000 NUL bytes."


def test_a_call_without_a_result_is_closed_by_fixing(store: SessionStore, home: HomePaths) -> None:
    transcript = store.open(MAIN)
    transcript.append(user("List it"))
    transcript.append(answer("", ToolCall("c1", "exec", {}), ToolCall("c2", "read", {})))
    transcript.append(CallStarted("c1", "exec", "h"))
    store.find(MAIN)
    [finding] = check_folder(store.folder).findings
    assert (finding.fault, finding.remedy) == (TranscriptFault.UNANSWERED, Remedy.TURN)
    assert finding.text == "2 tool calls have no result (exec, read)."
    told = fix(check_folder(store.folder), make_store(home, "n"), home)
    assert told == ("The interrupted turn of agent:main:main was closed.",)
    assert check_folder(store.folder).findings == ()
    view = Transcript.open(transcript.path, stamps("x"))
    assert isinstance(view.tree.path[-1].body, Interrupted)


def test_a_turn_that_runs_is_not_closed(store: SessionStore, home: HomePaths) -> None:
    transcript = store.open(MAIN)
    transcript.append(answer("", ToolCall("c1", "exec", {})))
    store.find(MAIN)
    before = transcript.path.read_bytes()
    with SessionLease(home, MAIN):
        [told] = fix(check_folder(store.folder), make_store(home, "n"), home)
    assert "in use by another process" in told
    assert transcript.path.read_bytes() == before


def test_a_call_on_a_branch_that_was_left_does_not_matter(store: SessionStore) -> None:
    transcript = store.open(MAIN)
    asked = transcript.append(user("List it"))
    transcript.append(answer("", ToolCall("c1", "exec", {})))
    transcript.append(answer("Rather not."), parent=asked.id)
    store.find(MAIN)
    assert check_folder(store.folder).findings == ()


def spoil_index(path: Path) -> None:
    path.write_text("{")


def lie_about_messages(path: Path) -> None:
    path.write_text(path.read_text().replace('"messageCount": 2', '"messageCount": 3'))


def claim_more_bytes(path: Path) -> None:
    rows = json.loads(path.read_text())
    rows["agent:main:main"]["size"] += 1000
    path.write_text(json.dumps(rows))


def forget_a_session(path: Path) -> None:
    rows = json.loads(path.read_text())
    del rows["agent:main:main"]
    path.write_text(json.dumps(rows))


@pytest.mark.parametrize("damage", [spoil_index, lie_about_messages, claim_more_bytes, forget_a_session])
def test_an_index_that_disagrees_is_made_again(
    store: SessionStore, home: HomePaths, damage: Callable[[Path], None]
) -> None:
    talk(store)
    talk(store, IDEAS)
    listed = store.list()
    index = store.folder / "sessions.json"
    damage(index)
    wrong = index.read_bytes()
    report = check_folder(store.folder)
    assert TranscriptFault.INDEX in faults(report)
    told = fix(report, make_store(home, "n"), home)
    assert told[-1].startswith("The index was rebuilt from the transcripts: 2 sessions. The old index is")
    assert make_store(home, "m").list() == listed
    assert [fault for fault in faults(check_folder(store.folder)) if fault.is_problem] == []
    [aside] = store.folder.glob("sessions.json.corrupt.*")
    assert aside.read_bytes() == wrong


def test_an_index_that_alone_knows_a_session_is_not_thrown_away(store: SessionStore, home: HomePaths) -> None:
    path = talk(store)
    talk(store, IDEAS)
    break_the_header(path)
    index = store.folder / "sessions.json"
    ideas, main = index.read_text().splitlines()[1:3]
    unchecked = re.sub(r', "check": "[0-9a-f]+"', "", ideas)
    index.write_text("{\n" + unchecked.replace('"messageCount": 2', '"messageCount": 3') + "\n" + main + "\n}\n")
    wrong = index.read_bytes()
    again = make_store(home, "n")
    told = fix(check_folder(store.folder), again, home)
    assert told == ("The index is kept: only it knows the session of s1.jsonl. Import that first.",)
    assert index.read_bytes() == wrong
    assert texts(again.open(MAIN)) == ["Hello", "Hi"]


def test_an_index_that_lags_behind_is_no_problem(store: SessionStore) -> None:
    talk(store)
    store.open(MAIN).append(user("One more"))
    assert check_folder(store.folder).findings == ()


def test_a_lost_transcript_is_told(store: SessionStore) -> None:
    talk(store).unlink()
    [finding] = check_folder(store.folder).findings
    assert finding.fault is TranscriptFault.INDEX
    assert "The transcript of agent:main:main, s1.jsonl, is missing" in finding.text


def test_of_two_transcripts_for_one_key_the_older_is_told(store: SessionStore) -> None:
    path = talk(store)
    newer = path.with_name("s9.jsonl")
    newer.write_bytes(path.read_bytes().replace(b"2026-02-03", b"2026-02-04"))
    newer.chmod(0o600)
    store.list()
    [finding] = check_folder(store.folder).findings
    assert (finding.path, finding.fault) == (path, TranscriptFault.RIVAL)


def test_leftovers_are_listed_and_do_not_count_as_problems(store: SessionStore) -> None:
    path = talk(store)
    store.reset(MAIN)
    talk(store, IDEAS)
    store.delete(IDEAS)
    for name in (f"{path.name}.torn.1", "sessions.json.corrupt.1", ".retinue-00.tmp"):
        (store.folder / name).write_bytes(b"xyz")
        (store.folder / name).chmod(0o600)
    report = check_folder(store.folder)
    assert faults(report) == [TranscriptFault.LEFTOVER] * 5
    assert report.problems == 0


def test_permissions_of_everything_are_taken_back(store: SessionStore, home: HomePaths) -> None:
    talk(store).chmod(0o664)
    (store.folder / "sessions.json").chmod(0o604)
    store.folder.chmod(0o755)
    report = check_folder(store.folder)
    assert faults(report) == [TranscriptFault.PERMISSIONS] * 3
    fix(report, store, home)
    assert check_folder(store.folder).findings == ()
    assert store.folder.stat().st_mode & 0o777 == 0o700


def test_one_session_is_found_by_its_key_or_where_its_header_is_lost_by_the_index(store: SessionStore) -> None:
    path = talk(store)
    talk(store, IDEAS)
    break_the_header(path)
    [checked] = check_folder(store.folder, MAIN).transcripts
    assert checked.path == path
    [finding] = [finding for finding in checked.findings if finding.fault is TranscriptFault.NO_HEADER]
    assert f"`retinue sessions import {path} --session agent:main:main`" in finding.text
    [checked] = check_folder(store.folder, IDEAS).transcripts
    assert checked.findings == ()
    assert check_folder(store.folder, SessionKey.parse("nobody")).transcripts == ()


@pytest.mark.parametrize("longest", [10, 10_000_000])
def test_scanning_gives_every_byte_in_bounded_pieces(tmp_path: Path, longest: int) -> None:
    lines = [b"", b"a" * 9, b"b" * (BLOCK * 2 + 5), b"", b"c" * 10, b"end"]
    path = tmp_path / "f"
    path.write_bytes(b"\n".join(lines))
    scanned = list(scan_lines(path, longest=longest))
    assert [line.length for line in scanned] == [len(line) for line in lines]
    assert [line.data for line in scanned] == [line if len(line) <= longest else None for line in lines]
    assert [line.ended for line in scanned] == [True] * 5 + [False]
    assert scanned[-1].end == path.stat().st_size


CHECK_IN_LITTLE_MEMORY = """
import sys
from pathlib import Path
from retinue.sessions.check import check_transcript
checked = check_transcript(Path(sys.argv[1]))
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(checked.messages, checked.size, int(status["VmHWM"].split()[0]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["messages", "one line"])
def test_two_hundred_megabytes_are_checked_in_little_memory(tmp_path: Path, kind: str) -> None:
    size = 200 * 1024 * 1024
    store = SessionStore(tmp_path, TickingClock())
    path = store.open(MAIN).path
    with path.open("ab") as file:
        if kind == "messages":
            text = "word " * 4000
            count = size // len(text) + 1
            for number in range(count):
                message = {"role": "user", "content": text}
                stamp = {"id": f"m{number}", "parentId": f"m{number - 1}", "timestamp": "2026-02-03T10:00:00Z"}
                file.write(json.dumps({"type": "message", **stamp, "message": message}).encode() + b"\n")
        else:
            count = 0
            file.truncate(size)
    done = subprocess.run(
        [sys.executable, "-c", CHECK_IN_LITTLE_MEMORY, str(path)], capture_output=True, text=True, check=True
    )
    messages, seen, megabytes = map(int, done.stdout.split())
    assert (messages, seen) == (count, path.stat().st_size)
    assert megabytes < 150
