"""A folder is the agent's own where Retinue made it or its owner vouched for it, and only that very folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from retinue.storage.files import Root
from retinue.workspace.state import TRUST_FILE, is_own_workspace, read_trusted, revoke_trust, trust_folder
from tests.workspaces import begin_workspace


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that came with the state file of another."""
    shutil.copytree(begin_workspace(tmp_path / "theirs"), tmp_path / "clone")
    return tmp_path / "clone"


def is_trusted(home: Path, folder: Path) -> bool:
    with Root.open(folder) as root:
        return is_own_workspace(root, read_trusted(home))


def test_what_retinue_made_is_the_agents_own(home: Path, tmp_path: Path) -> None:
    assert is_trusted(home, begin_workspace(tmp_path / "made"))


def test_a_clone_is_nobodys_own_until_its_owner_says_so(home: Path, clone: Path) -> None:
    assert not is_trusted(home, clone)
    with Root.open(clone) as root:
        trust_folder(home, root)
    assert is_trusted(home, clone)
    assert (home / TRUST_FILE).stat().st_mode & 0o777 == 0o600
    with Root.open(clone) as root:
        assert revoke_trust(home, root)
        assert not revoke_trust(home, root)
    assert not is_trusted(home, clone)


def test_another_folder_at_its_place_is_not_it(home: Path, clone: Path, tmp_path: Path) -> None:
    with Root.open(clone) as root:
        trust_folder(home, root)
    clone.rename(tmp_path / "aside")
    clone.mkdir()
    assert not is_trusted(home, clone)
    assert not is_trusted(home, tmp_path / "aside"), "nor is it the same elsewhere"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"folders": 7}', b'{"folders": [{"path": 1}]}', b"\xff"])
def test_a_damaged_record_vouches_for_nothing(home: Path, clone: Path, content: bytes) -> None:
    with Root.open(clone) as root:
        trust_folder(home, root)
    (home / TRUST_FILE).write_bytes(content)
    assert not is_trusted(home, clone)
