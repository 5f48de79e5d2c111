"""What dead processes left half written goes away; what is being written stays."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from retinue.storage.files.descriptors import TEMPORARY_PREFIX, remove_tree, sweep_temporaries

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)


def leave(path: Path, age: timedelta) -> Path:
    path.write_text("half")
    moment = (NOW - age).timestamp()
    os.utime(path, (moment, moment))
    return path


def test_only_old_temporaries_are_removed(tmp_path: Path) -> None:
    old = leave(tmp_path / f"{TEMPORARY_PREFIX}0123.tmp", timedelta(hours=2))
    young = leave(tmp_path / f"{TEMPORARY_PREFIX}4567.tmp", timedelta(minutes=1))
    note = leave(tmp_path / "notes.tmp", timedelta(days=9))
    assert sweep_temporaries(tmp_path, NOW - timedelta(hours=1)) == 1
    assert not old.exists()
    assert young.exists()
    assert note.exists()


def test_a_missing_folder_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert sweep_temporaries(tmp_path / "nowhere", NOW) == 0


def test_a_folder_is_removed_with_its_content_and_one_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "copy" / "deep").mkdir(parents=True)
    (tmp_path / "copy" / "deep" / "file").write_text("x")
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "copy" / "link").symlink_to(tmp_path / "outside")
    for _ in range(2):
        remove_tree(tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
    assert (tmp_path / "outside").read_text() == "kept"
