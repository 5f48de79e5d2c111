"""Workspace trust: a workspace that Retinue created, or that the owner trusted, is the agent's own.

The files of any other folder, such as a cloned repository, are untrusted data. The list of trusted folders is in the
home, where no agent can write; a mark inside the folder would prove nothing.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from msgspec import Struct

from retinue.storage.files import Root
from retinue.storage.files.private import make_private_dir, write_atomic
from retinue.workspace.first_run import load_state

FILE_NAME = "trusted-workspaces.json"

log = logging.getLogger(__name__)


class TrustedFolder(Struct, frozen=True, order=True):
    """A folder that the owner trusted, identified by path and inode."""

    path: str
    inode: int


def is_own_workspace(root: Root, trusted: frozenset[TrustedFolder]) -> bool:
    """Return whether a workspace is the agent's own."""
    return _name(root) in trusted or load_state(root).was_made_here(root)


def read_trusted(home: Path) -> frozenset[TrustedFolder]:
    """Return the folders that the owner trusted; none if the list cannot be read."""
    try:
        found = json.loads((home / FILE_NAME).read_bytes())
        return frozenset(TrustedFolder(str(row["path"]), int(row["inode"])) for row in found["folders"])
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("%s cannot be read, so no folder is trusted: %s", home / FILE_NAME, error)
        return frozenset()


def trust_folder(home: Path, root: Root) -> None:
    """Record that the owner trusts a folder."""
    others = {each for each in read_trusted(home) if each.path != str(root.path)}
    _write(home, others | {_name(root)})


def revoke_trust(home: Path, root: Root) -> bool:
    """Revoke the trust of a folder; return False if it was not trusted."""
    trusted = read_trusted(home)
    _write(home, trusted - {_name(root)})
    return _name(root) in trusted


def _name(root: Root) -> TrustedFolder:
    return TrustedFolder(str(root.path), root.place.inode)


def _write(home: Path, trusted: frozenset[TrustedFolder] | set[TrustedFolder]) -> None:
    rows = [{"path": each.path, "inode": each.inode} for each in sorted(trusted)]
    make_private_dir(home)
    write_atomic(home / FILE_NAME, json.dumps({"version": 1, "folders": rows}, indent=2).encode() + b"\n")
