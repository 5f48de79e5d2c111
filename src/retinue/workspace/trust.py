"""Whose a workspace is: one that Retinue made, or that the owner vouched for, is the agent's own.

Any other is somebody else's, such as a cloned repository: what its files say is data. Who vouched for what stands in
the home, where no agent writes; a folder that came with a word for itself would prove nothing.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from msgspec import Struct

from retinue.storage.files import Root
from retinue.storage.files.private import make_private_dir, write_atomic
from retinue.workspace.ritual import load_state

FILE_NAME = "trusted-workspaces.json"

log = logging.getLogger(__name__)


class Vouched(Struct, frozen=True, order=True):
    """A folder that the owner vouched for; another one that takes its place is not it."""

    path: str
    inode: int


def is_own(root: Root, vouched: frozenset[Vouched]) -> bool:
    """Whether a workspace is the agent's own."""
    return _name(root) in vouched or load_state(root).was_made_here(root)


def read_vouched(home: Path) -> frozenset[Vouched]:
    """The folders that the owner vouched for; none where that cannot be read."""
    try:
        found = json.loads((home / FILE_NAME).read_bytes())
        return frozenset(Vouched(str(row["path"]), int(row["inode"])) for row in found["folders"])
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("%s cannot be used, so no folder counts as vouched for: %s", home / FILE_NAME, error)
        return frozenset()


def vouch(home: Path, root: Root) -> None:
    """Keep that the owner vouches for a folder, as it is now."""
    others = {each for each in read_vouched(home) if each.path != str(root.path)}
    _write(home, others | {_name(root)})


def withdraw(home: Path, root: Root) -> bool:
    """Take that back; false where nobody had vouched for the folder."""
    vouched = read_vouched(home)
    _write(home, vouched - {_name(root)})
    return _name(root) in vouched


def _name(root: Root) -> Vouched:
    return Vouched(str(root.path), root.place.inode)


def _write(home: Path, vouched: frozenset[Vouched] | set[Vouched]) -> None:
    rows = [{"path": each.path, "inode": each.inode} for each in sorted(vouched)]
    make_private_dir(home)
    write_atomic(home / FILE_NAME, json.dumps({"version": 1, "folders": rows}, indent=2).encode() + b"\n")
