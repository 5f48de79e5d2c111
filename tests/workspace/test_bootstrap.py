"""Which files reach which prompt, and what becomes of bad ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.core.keys import SessionKind
from retinue.storage.files import Root
from retinue.workspace.bootstrap import (
    BOOTSTRAP_FILES,
    MAX_FILE_BYTES,
    Audience,
    BootstrapReader,
    FileStatus,
    Injection,
    WorkspaceFile,
    audience_of,
)
from retinue.workspace.settings import WorkspaceSettings
from tests.storage.conftest import without_privileges

DEFAULTS = WorkspaceSettings()


@pytest.fixture
def reader(root: Root) -> BootstrapReader:
    return BootstrapReader(root)


@pytest.fixture
def full(root: Root) -> Root:
    for row in BOOTSTRAP_FILES:
        root_file = root.path / row.name
        if row.name != "memory.md":
            root_file.write_text(f"{row.name} text")
    return root


def names(files: tuple[WorkspaceFile, ...]) -> list[str]:
    return [file.name.removesuffix(".md") for file in files]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (SessionKind.MAIN, "AGENTS SOUL IDENTITY USER TOOLS BOOTSTRAP MEMORY"),
        (SessionKind.DIRECT, "AGENTS SOUL IDENTITY USER TOOLS BOOTSTRAP MEMORY"),
        (SessionKind.EXPLICIT, "AGENTS SOUL IDENTITY USER TOOLS BOOTSTRAP MEMORY"),
        (SessionKind.GROUP, "AGENTS SOUL IDENTITY"),
        (SessionKind.CHANNEL, "AGENTS SOUL IDENTITY"),
        (SessionKind.SUBAGENT, "AGENTS TOOLS"),
        (SessionKind.CRON, "AGENTS TOOLS"),
        (SessionKind.HOOK, "AGENTS TOOLS"),
        (SessionKind.HEARTBEAT, "AGENTS SOUL IDENTITY USER TOOLS MEMORY"),
        (SessionKind.BOOT, "AGENTS SOUL IDENTITY USER TOOLS MEMORY"),
    ],
)
@pytest.mark.usefixtures("full")
def test_each_kind_of_session_gets_its_files_in_order(
    reader: BootstrapReader, kind: SessionKind, expected: str
) -> None:
    files = reader.stable_files(audience_of(kind), DEFAULTS, first_run_pending=True)
    assert names(files) == expected.split()
    assert files[0].text == "AGENTS.md text"


def test_a_minimal_prompt_is_a_workers_whatever_the_session() -> None:
    assert {audience_of(kind, minimal=True) for kind in SessionKind} == {Audience.WORKER}


@pytest.mark.usefixtures("full")
def test_the_ritual_is_shown_only_while_it_is_pending(reader: BootstrapReader) -> None:
    files = reader.stable_files(Audience.OWNER, DEFAULTS, first_run_pending=False)
    assert "BOOTSTRAP" not in names(files)


@pytest.mark.usefixtures("full")
def test_heartbeat_and_boot_files_belong_to_the_turn(reader: BootstrapReader) -> None:
    found = {audience: reader.turn_file(audience, DEFAULTS) for audience in Audience}
    assert {audience: file.name for audience, file in found.items() if file} == {
        Audience.HEARTBEAT: "HEARTBEAT.md",
        Audience.BOOT: "BOOT.md",
    }


def test_a_turn_file_that_is_missing_or_blank_is_none(root: Root, reader: BootstrapReader) -> None:
    assert reader.turn_file(Audience.HEARTBEAT, DEFAULTS) is None
    root.write("HEARTBEAT.md", b" \n")
    assert reader.turn_file(Audience.HEARTBEAT, DEFAULTS) is None
    root.write("HEARTBEAT.md", b"- look at the mail")
    file = reader.turn_file(Audience.HEARTBEAT, DEFAULTS)
    assert file is not None
    assert file.text == "- look at the mail"


@pytest.mark.usefixtures("full")
def test_skipping_bootstrap_reads_nothing(reader: BootstrapReader) -> None:
    settings = WorkspaceSettings(skip_bootstrap=True)
    assert reader.stable_files(Audience.OWNER, settings, first_run_pending=True) == ()
    assert reader.extra_files(Audience.OWNER, settings, ["x/AGENTS.md"], Injection.FULL) == ()
    assert reader.turn_file(Audience.HEARTBEAT, settings) is None


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(
    ("injection", "expected"),
    [(Injection.CONTINUATION, ["SOUL", "IDENTITY", "USER"]), (Injection.NONE, [])],
)
def test_a_continuation_keeps_who_is_who(reader: BootstrapReader, injection: Injection, expected: list[str]) -> None:
    files = reader.stable_files(Audience.OWNER, DEFAULTS, first_run_pending=True, injection=injection)
    assert names(files) == expected
    assert reader.extra_files(Audience.OWNER, DEFAULTS, ["docs/AGENTS.md"], injection) == ()


def test_expected_files_leave_a_marker_and_the_others_nothing(reader: BootstrapReader) -> None:
    files = reader.stable_files(Audience.OWNER, DEFAULTS, first_run_pending=True)
    assert names(files) == ["AGENTS", "SOUL", "IDENTITY", "USER", "TOOLS"]
    assert files[1] == WorkspaceFile("SOUL.md", "[SOUL.md is missing]", FileStatus.MISSING)


def test_files_that_are_not_wanted_are_not_missed(reader: BootstrapReader) -> None:
    settings = WorkspaceSettings(skip_optional_bootstrap_files=["SOUL.md", "IDENTITY.md", "USER.md"])
    assert names(reader.stable_files(Audience.OWNER, settings, first_run_pending=True)) == ["AGENTS", "TOOLS"]


def test_front_matter_is_stripped_and_lines_are_normalised(root: Root, reader: BootstrapReader) -> None:
    root.write("AGENTS.md", b"\xef\xbb\xbf---\r\nsummary: x\r\n---\r\n# One\r\n\r\ntwo\rthree  \r\n\r\n")
    assert reader.read("AGENTS.md").text == "# One\n\ntwo\nthree"


def test_the_facts_in_identity_front_matter_reach_the_prompt(root: Root, reader: BootstrapReader) -> None:
    root.write("IDENTITY.md", "---\nname: Logic\nemoji: 🤖\navatar: ./a.png\n---\n".encode())
    assert reader.read("IDENTITY.md").text == "- **Name:** Logic\n- **Emoji:** 🤖"


def test_both_spellings_of_memory_are_read_when_they_are_two_files(root: Root, reader: BootstrapReader) -> None:
    (root.path / "MEMORY.md").write_text("upper")
    (root.path / "memory.md").write_text("lower")
    files = reader.stable_files(Audience.OWNER, DEFAULTS, first_run_pending=False)
    assert [file.text for file in files[-2:]] == ["upper", "lower"]


def test_one_memory_file_with_two_names_is_shown_once(root: Root, reader: BootstrapReader) -> None:
    (root.path / "MEMORY.md").write_text("facts")
    (root.path / "memory.md").symlink_to("MEMORY.md")
    files = reader.stable_files(Audience.OWNER, DEFAULTS, first_run_pending=False)
    assert [file.text for file in files].count("facts") == 1


def test_the_lower_case_spelling_alone_is_read(root: Root, reader: BootstrapReader) -> None:
    (root.path / "memory.md").write_text("facts")
    assert reader.stable_files(Audience.OWNER, DEFAULTS, first_run_pending=False)[-1].text == "facts"


def test_extra_files_are_sorted_and_for_those_who_may_read_them(root: Root, reader: BootstrapReader) -> None:
    for path in ("docs/b.md", "docs/A.md", "x/AGENTS.md", "x/USER.md", "x/HEARTBEAT.md"):
        root.write(path, path.encode())
    extra = ["x/USER.md", "docs/b.md", "x/AGENTS.md", "docs/A.md", "gone.md", "AGENTS.md", "x/HEARTBEAT.md"]

    def extras(audience: Audience) -> list[str]:
        return [file.name for file in reader.extra_files(audience, DEFAULTS, extra, Injection.FULL)]

    assert extras(Audience.OWNER) == ["docs/A.md", "docs/b.md", "gone.md", "x/AGENTS.md", "x/USER.md"]
    assert extras(Audience.SHARED) == ["docs/A.md", "docs/b.md", "gone.md", "x/AGENTS.md"]
    assert extras(Audience.WORKER) == ["x/AGENTS.md"]


def test_an_extra_path_that_leads_out_is_only_named(root: Root, reader: BootstrapReader, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    extra = ["../secret.md", str(tmp_path / "secret.md")]
    files = reader.extra_files(Audience.OWNER, DEFAULTS, extra, Injection.FULL)
    assert [file.status for file in files] == [FileStatus.UNUSABLE] * 2
    assert not any(file.text == "secret" for file in files)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_link_out(path: Path) -> None:
    (path.parent.parent / "outside.md").write_text("outside")
    path.symlink_to("../outside.md")


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)


def make_binary(path: Path) -> None:
    path.write_bytes(b"text\0more")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_fifo, "it is not a regular file"),
        (Path.mkdir, "it is not a regular file"),
        (make_link_out, "it is outside of the workspace"),
        (make_loop, "it is a broken link"),
        (make_sparse, "it is larger than 2 MB"),
        (make_binary, "it is not text"),
    ],
)
def test_a_bad_file_becomes_a_marker_and_the_others_load(
    root: Root, reader: BootstrapReader, make: Callable[[Path], None], reason: str
) -> None:
    make(root.path / "SOUL.md")
    root.write("AGENTS.md", b"fine")
    for _ in range(2):
        agents, soul, *_ = reader.stable_files(Audience.OWNER, DEFAULTS, first_run_pending=False)
        assert agents.text == "fine"
        assert soul.status is FileStatus.UNUSABLE
        assert soul.text == f"[SOUL.md is not shown: {reason}]"
        assert soul.problem
        assert "SOUL.md" in soul.problem


def test_an_unreadable_file_becomes_a_marker(root: Root, reader: BootstrapReader) -> None:
    root.write("SOUL.md", b"x")
    (root.path / "SOUL.md").chmod(0o200)
    root.path.chmod(0o755)
    with without_privileges():
        assert reader.read("SOUL.md").text == "[SOUL.md is not shown: permission denied]"


def test_two_megabytes_are_read_and_one_byte_more_is_not(root: Root, reader: BootstrapReader) -> None:
    root.write("SOUL.md", b"x" * MAX_FILE_BYTES)
    assert len(reader.read("SOUL.md").text) == MAX_FILE_BYTES
    root.write("SOUL.md", b"x" * (MAX_FILE_BYTES + 1))
    assert reader.read("SOUL.md").status is FileStatus.UNUSABLE


def test_links_inside_are_followed_and_dangling_ones_are_missing(root: Root, reader: BootstrapReader) -> None:
    root.write("real/soul.md", b"kind")
    (root.path / "SOUL.md").symlink_to("real/soul.md")
    (root.path / "TOOLS.md").symlink_to("nowhere.md")
    assert reader.read("SOUL.md").text == "kind"
    assert reader.read("TOOLS.md").status is FileStatus.MISSING


def test_invalid_utf8_is_shown_with_a_warning(root: Root, reader: BootstrapReader) -> None:
    root.write("SOUL.md", b"caf\xe9 au lait")
    file = reader.read("SOUL.md")
    assert file.text == "caf\ufffd au lait"
    assert file.status is FileStatus.OK
    assert file.problem == "'SOUL.md' is not valid UTF-8 at byte 3. Save it as UTF-8."


def test_an_unchanged_file_is_not_read_again_and_a_changed_one_is(root: Root, reader: BootstrapReader) -> None:
    root.write("SOUL.md", b"one")
    first = reader.read("SOUL.md")
    assert reader.read("SOUL.md") is first
    root.write("SOUL.md", b"two")
    assert reader.read("SOUL.md").text == "two"
    root.remove("SOUL.md")
    assert reader.read("SOUL.md").status is FileStatus.MISSING
    root.write("SOUL.md", b"new")
    assert reader.read("SOUL.md").text == "new"


def test_a_file_swapped_for_one_of_equal_size_and_time_is_noticed(root: Root, reader: BootstrapReader) -> None:
    root.write("SOUL.md", b"one")
    assert reader.read("SOUL.md").text == "one"
    status = (root.path / "SOUL.md").stat()
    (root.path / "SOUL.md").write_bytes(b"two")
    os.utime(root.path / "SOUL.md", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert reader.read("SOUL.md").text == "two"


def test_a_link_whose_target_changes_is_read_again(root: Root, reader: BootstrapReader) -> None:
    root.write("a.md", b"a")
    root.write("b.md", b"b")
    (root.path / "SOUL.md").symlink_to("a.md")
    assert reader.read("SOUL.md").text == "a"
    (root.path / "SOUL.md").unlink()
    (root.path / "SOUL.md").symlink_to("b.md")
    assert reader.read("SOUL.md").text == "b"


def test_a_file_with_several_hard_links_is_refused(tmp_path: Path, reader: BootstrapReader, root: Root) -> None:
    outside = tmp_path / "private.txt"
    outside.write_text("The key is under the mat.")
    os.link(outside, root.path / "USER.md")
    files = reader.stable_files(Audience.OWNER, DEFAULTS, first_run_pending=False)
    file = next(file for file in files if file.name == "USER.md")
    assert file.status is FileStatus.UNUSABLE
    assert "mat" not in file.text
    assert "2 hard links" in (file.problem or "")


def test_a_file_that_gets_another_hard_link_later_is_refused_too(
    tmp_path: Path, reader: BootstrapReader, root: Root
) -> None:
    (root.path / "SOUL.md").write_text("Kind.")
    assert reader.read("SOUL.md").text == "Kind."
    os.link(root.path / "SOUL.md", tmp_path / "copy")
    assert reader.read("SOUL.md").status is FileStatus.UNUSABLE
    (tmp_path / "copy").unlink()
    assert reader.read("SOUL.md").text == "Kind."


@pytest.mark.usefixtures("full")
def test_configured_extra_files_follow_the_known_ones_in_alphabetical_order(
    reader: BootstrapReader, root: Root
) -> None:
    for name in ("TEAM.md", "house.md", "team-rules.md", ".secret.md", "notes.txt"):
        (root.path / name).write_text(f"{name} text")
    (root.path / "folder.md").mkdir()
    settings = WorkspaceSettings(bootstrap_extra_files=["*.md", "ABSENT.md"])
    files = reader.stable_files(Audience.OWNER, settings, first_run_pending=False)
    assert names(files) == [
        *["AGENTS", "SOUL", "IDENTITY", "USER", "TOOLS", "MEMORY"],
        "ABSENT",
        "house",
        "team-rules",
        "TEAM",
    ]
    assert next(file for file in files if file.name == "ABSENT.md").text == "[ABSENT.md is missing]"


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("audience", [Audience.SHARED, Audience.WORKER])
def test_configured_extra_files_are_only_in_private_prompts(
    reader: BootstrapReader, root: Root, audience: Audience
) -> None:
    (root.path / "TEAM.md").write_text("Ada, Grace")
    settings = WorkspaceSettings(bootstrap_extra_files=["TEAM.md"])
    assert "TEAM" not in names(reader.stable_files(audience, settings, first_run_pending=False))
