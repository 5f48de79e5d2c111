"""Snapshots of a folder."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

ARCHIVE = "backups/workspace-20300514-150000.tar.gz"
AT = ("--now", "2030-05-14T15:00:00")


@pytest.fixture
def backup(workspace: Workspace) -> Script:
    return script("backup", "backup.py", workspace)


def names(workspace: Workspace, folder: str) -> list[str]:
    return sorted(path.name for path in (workspace.folder / folder).iterdir())


def test_a_snapshot_restores_to_the_same_files(backup: Script, workspace: Workspace) -> None:
    workspace.write("MEMORY.md", "likes tea\n")
    workspace.write("notes/ä b.md", "x" * 100_000)
    workspace.write("empty", "")
    (workspace.folder / "bare").mkdir()
    tool = workspace.write("run.sh", "#!/bin/sh\n")
    tool.chmod(0o755)
    (workspace.folder / "link").symlink_to("MEMORY.md")
    (made,) = backup.json("create", *AT)
    assert (made["archive"], made["files"]) == (ARCHIVE, 4)
    backup.run("restore", ARCHIVE, "--to", "back")
    back = workspace.folder / "back"
    assert (back / "notes/ä b.md").read_text() == "x" * 100_000
    assert (back / "bare").is_dir()
    assert os.access(back / "run.sh", os.X_OK)
    assert (back / "link").readlink() == Path("MEMORY.md")
    assert names(workspace, "back") == ["MEMORY.md", "bare", "empty", "link", "notes", "run.sh"]


def test_ordinary_tools_can_read_an_archive_and_check_it(backup: Script, workspace: Workspace) -> None:
    workspace.write("a.txt", "a")
    workspace.write("sub/b c.txt", "b")
    backup.run("create", *AT)
    workspace.shell(f"mkdir out && tar -xzf {ARCHIVE} -C out && cd out && sha256sum --strict -c MANIFEST.sha256")


def test_an_archive_is_private_and_leaves_itself_out(backup: Script, workspace: Workspace) -> None:
    workspace.write("a.txt", "a")
    backup.run("create", *AT)
    (second,) = backup.json("create", "--now", "2030-05-14T15:00:01")
    assert second["files"] == 1
    assert (workspace.folder / ARCHIVE).stat().st_mode & 0o777 == 0o600
    assert not list((workspace.folder / "backups").glob(".*"))


def test_patterns_leave_files_and_folders_out(backup: Script, workspace: Workspace) -> None:
    for name in ("keep.md", "film.mp4", ".git/config", "deep/film.mp4", "deep/tmp/x"):
        workspace.write(name, "x")
    (made,) = backup.json("create", "--exclude", "*.mp4", "--exclude", ".git", "--exclude", "deep/tmp", *AT)
    assert made["files"] == 1


def test_old_snapshots_of_the_same_name_are_removed(backup: Script, workspace: Workspace) -> None:
    workspace.write("a.txt", "a")
    workspace.write("backups/workspace-notes.tar.gz", "not ours")
    backup.run("create", "--name", "other", "--now", "2029-01-01T00:00:00")
    for day in (11, 12, 13):
        backup.run("create", "--keep", 2, "--now", f"2030-05-{day}T00:00:00")
    assert names(workspace, "backups") == [
        "other-20290101-000000.tar.gz",
        "workspace-20300512-000000.tar.gz",
        "workspace-20300513-000000.tar.gz",
        "workspace-notes.tar.gz",
    ]


def test_diff_names_what_changed(backup: Script, workspace: Workspace) -> None:
    for name in ("same", "changed", "gone"):
        workspace.write(name, "1")
    backup.run("create", *AT)
    workspace.write("changed", "2")
    workspace.write("added", "3")
    (workspace.folder / "gone").unlink()
    assert [(change["change"], change["file"]) for change in backup.json("diff", ARCHIVE)] == [
        ("added", "added"),
        ("changed", "changed"),
        ("deleted", "gone"),
    ]


def test_odd_file_names_survive(backup: Script, workspace: Workspace) -> None:
    for name in ('quo"te', "back\\slash", "new\nline", " space "):
        workspace.write(name, "x")
    backup.run("create", *AT)
    assert backup.json("verify", ARCHIVE)[0]["files"] == 4
    assert backup.json("diff", ARCHIVE) == []


def test_hard_links_are_stored_as_files(backup: Script, workspace: Workspace) -> None:
    first = workspace.write("first", "text")
    (workspace.folder / "second").hardlink_to(first)
    backup.run("create", *AT)
    backup.run("restore", ARCHIVE, "--to", "back")
    assert workspace.read("back/second") == "text"


def test_a_fifo_is_skipped_and_does_not_block(backup: Script, workspace: Workspace) -> None:
    workspace.write("a", "a")
    os.mkfifo(workspace.folder / "pipe")
    printed, warned = backup.run_loudly("create", *AT)
    assert "1 files" in printed
    assert "not a file, folder or link" in warned


def test_damage_is_noticed(backup: Script, workspace: Workspace) -> None:
    workspace.write("a.txt", "hello world")
    backup.run("create", *AT)
    archive = workspace.folder / ARCHIVE
    whole = archive.read_bytes()

    archive.write_bytes(gzip.compress(gzip.decompress(whole).replace(b"hello world", b"hellO world")))
    assert "does not match its checksums: a.txt" in backup.fail("verify", ARCHIVE)
    assert "does not match its checksums" in backup.fail("restore", ARCHIVE, "--to", "back")
    assert not (workspace.folder / "back").exists()

    archive.write_bytes(whole[:-40])
    assert "damaged" in backup.fail("verify", ARCHIVE)
    archive.write_bytes(b"not an archive")
    assert "damaged or not a .tar.gz" in backup.fail("verify", ARCHIVE)


def test_an_archive_of_another_program_is_not_trusted(backup: Script, workspace: Workspace) -> None:
    with tarfile.open(workspace.folder / "evil.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("../evil.txt")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"evil"))
    assert "has no MANIFEST.sha256" in backup.fail("restore", "evil.tar.gz", "--to", "back")
    assert not (workspace.folder / "evil.txt").exists()


def test_links_out_of_the_folder_are_not_restored(backup: Script, workspace: Workspace) -> None:
    workspace.write("a", "a")
    (workspace.folder / "out").symlink_to("/etc/passwd")
    backup.run("create", *AT)
    (restored,) = backup.json("restore", ARCHIVE, "--to", "back")
    assert restored["skipped"] == ["out"]
    assert names(workspace, "back") == ["a"]


def test_nothing_is_restored_over_existing_files(backup: Script, workspace: Workspace) -> None:
    workspace.write("a", "a")
    backup.run("create", *AT)
    workspace.write("a", "precious")
    assert "is not empty" in backup.fail("restore", ARCHIVE, "--to", ".")
    assert workspace.read("a") == "precious"


def test_what_is_missing_is_named(backup: Script, workspace: Workspace) -> None:
    assert "there is no folder nowhere" in backup.fail("create", "--source", "nowhere")
    assert "there is no archive at x.tar.gz" in backup.fail("verify", "x.tar.gz")
    assert "there is no folder backups" in backup.fail("list")
    assert "at least 1" in backup.misuse("create", "--keep", "0")
    assert "choose one with --name" in backup.fail("create", "--name", "a/b")
    workspace.write("a", "a")
    backup.run("create", *AT)
    assert "exists already" in backup.fail("create", *AT)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_fails_the_snapshot_and_leaves_none(backup: Script, workspace: Workspace) -> None:
    workspace.write("secret", "x").chmod(0)
    assert "Permission denied" in backup.fail("create", *AT)
    assert names(workspace, "backups") == []


def test_the_list_shows_archives_only(backup: Script, workspace: Workspace) -> None:
    workspace.write("a", "a")
    backup.run("create", *AT)
    workspace.write("backups/readme.txt", "x")
    shutil.copy(workspace.folder / ARCHIVE, workspace.folder / "backups/loose.tar.gz")
    assert [entry["archive"] for entry in backup.json("list")] == [ARCHIVE]
