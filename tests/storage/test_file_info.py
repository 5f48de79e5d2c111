"""Stamps of files: they change with the file, and a file that has just changed is not trusted to keep its stamp."""

from __future__ import annotations

import time
from pathlib import Path

from retinue.storage.files.file_info import is_fresh, stamp_path, stamp_status

SECOND = 1_000_000_000


def test_a_stamp_changes_with_the_file_and_not_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "note.md"
    assert stamp_path(file) is None
    file.write_text("one")
    first = stamp_path(file)
    assert first == stamp_status(file.stat()) == stamp_path(str(file))
    file.write_text("another")
    assert stamp_path(file) != first


def test_a_link_has_its_own_stamp(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("one")
    link = tmp_path / "link"
    link.symlink_to("target")
    assert stamp_path(link) == stamp_path(tmp_path / "target")
    assert stamp_path(link, follow=False) == stamp_status(link.lstat()) != stamp_path(link)


def test_a_file_that_changed_during_a_look_is_fresh(tmp_path: Path) -> None:
    file = tmp_path / "note.md"
    file.write_text("one")
    now = time.time_ns()
    assert is_fresh(stamp_path(file), now - SECOND, now + SECOND)
    assert not is_fresh(stamp_path(file), now + 60 * SECOND, now + 61 * SECOND)
    assert not is_fresh(None, now - SECOND, now + SECOND)
