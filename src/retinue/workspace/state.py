"""The state of a workspace: its state file, its first conversation (the first run), and whether it is trusted.

A workspace that Retinue created, or that the owner trusted, is the agent's own. The files of any other folder, such as
a cloned repository, are untrusted data. The list of trusted folders is in the home, where no agent can write; a mark
inside the folder would prove nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path

from msgspec import Struct

from retinue.core.codec import from_plain, load_json, to_plain
from retinue.core.errors import StorageError
from retinue.storage.files import FileIdentity, Links, NotThere, Root
from retinue.storage.files.descriptors import make_private_dir, write_atomic
from retinue.storage.frontmatter import split_front_matter
from retinue.workspace.bootstrap import FIRST_RUN_FILE, MAX_FILE_BYTES

log = logging.getLogger(__name__)

STATE_FILE = ".retinue/workspace-state.json"
CREATOR = "retinue"
PROFILE_FILES = ("IDENTITY.md", "USER.md")
"""The files that the first conversation fills in; SOUL.md may stay unchanged."""

_VERSION = 1
_STATE_BYTES = 65_536


class FirstRunState(StrEnum):
    """The state of the first conversation."""

    PENDING = "pending"
    COMPLETE = "complete"
    LEFTOVER = "leftover"


class WorkspaceState(Struct, frozen=True, rename="camel"):
    """The content of the state file.

    A cloned repository can contain a state file, so `created_by` counts only together with `folder`, the inode of the
    folder that was created.
    """

    bootstrap_seeded_at: str | None = None
    setup_completed_at: str | None = None
    created_by: str | None = None
    folder: int | None = None

    def was_made_here(self, root: Root) -> bool:
        """Return whether Retinue created this folder, so that its files are the agent's own."""
        return self.created_by == CREATOR and self.folder == root.place.inode


def judge_first_run(*, file_present: bool, completed: bool, profile_filled: bool) -> FirstRunState:
    """Return the state: the agent ends the first run by deleting the file; if it forgot to, the file is a leftover."""
    if not file_present:
        return FirstRunState.COMPLETE
    return FirstRunState.LEFTOVER if completed or profile_filled else FirstRunState.PENDING


def first_run_state(root: Root) -> FirstRunState:
    """Return the state of a workspace's first conversation; one file check once it is complete."""
    try:
        present = root.identify(FIRST_RUN_FILE, links=Links.INSIDE) is not None
    except StorageError:
        present = True
    if not present:
        return FirstRunState.COMPLETE
    try:
        files = [root.identify(name, links=Links.INSIDE) for name in (STATE_FILE, *PROFILE_FILES)]
    except StorageError:
        return _judge_files(root)
    known = _JUDGED.get(root.path)
    if known is None or known[0] != files:
        known = _JUDGED[root.path] = files, _judge_files(root)
    return known[1]


_JUDGED: dict[Path, tuple[list[FileIdentity | None], FirstRunState]] = {}
"""The last state of each workspace and the files that it was read from; every turn asks for it."""


def _judge_files(root: Root) -> FirstRunState:
    completed = load_state(root).setup_completed_at is not None
    return judge_first_run(file_present=True, completed=completed, profile_filled=completed or _is_profile_filled(root))


def load_state(root: Root) -> WorkspaceState:
    """Load the state of a workspace; a missing or invalid file counts as empty."""
    try:
        return from_plain(load_json(root.read(STATE_FILE, max_bytes=_STATE_BYTES).data), WorkspaceState)
    except NotThere:
        return WorkspaceState()
    except (StorageError, ValueError) as error:
        log.warning("%s cannot be read (%s); it is not changed and counts as empty", STATE_FILE, error)
        return WorkspaceState()


def save_state(root: Root, state: WorkspaceState) -> None:
    """Save the state of a workspace."""
    root.write(STATE_FILE, _format_file(state))


def format_timestamp(now: datetime) -> str:
    """Format a time for the state file."""
    return now.isoformat(timespec="seconds")


@cache
def load_template(name: str) -> str:
    """Return the template of a workspace file."""
    text = resources.files("retinue.workspace").joinpath("templates", name).read_text("utf-8")
    return split_front_matter(text)[1].strip() + "\n"


def _is_profile_filled(root: Root) -> bool:
    """Return whether there are profile files and none of them is still the template."""
    found = {name: text for name in PROFILE_FILES if (text := _read_text(root, name)) is not None}
    return bool(found) and all(text.split() != load_template(name).split() for name, text in found.items())


def _read_text(root: Root, name: str) -> str | None:
    try:
        found = root.read(name, max_bytes=MAX_FILE_BYTES, links=Links.INSIDE)
    except StorageError:
        return None
    return found.data.decode("utf-8-sig", "replace")


TRUST_FILE = "trusted-workspaces.json"


class TrustedFolder(Struct, frozen=True, order=True):
    """A folder that the owner trusted, identified by path and inode."""

    path: str
    inode: int


class _TrustList(Struct, frozen=True):
    """The content of the file that lists the trusted folders."""

    folders: tuple[TrustedFolder, ...]


def is_own_workspace(root: Root, trusted: frozenset[TrustedFolder]) -> bool:
    """Return whether a workspace is the agent's own."""
    return _identify(root) in trusted or load_state(root).was_made_here(root)


def read_trusted(home: Path) -> frozenset[TrustedFolder]:
    """Return the folders that the owner trusted; none if the list cannot be read."""
    try:
        return frozenset(from_plain(load_json((home / TRUST_FILE).read_bytes()), _TrustList).folders)
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read, so no folder is trusted: %s", home / TRUST_FILE, error)
        return frozenset()


def trust_folder(home: Path, root: Root) -> None:
    """Record that the owner trusts a folder."""
    others = {each for each in read_trusted(home) if each.path != str(root.path)}
    _write_trusted(home, others | {_identify(root)})


def revoke_trust(home: Path, root: Root) -> bool:
    """Revoke the trust of a folder; return False if it was not trusted."""
    trusted = read_trusted(home)
    _write_trusted(home, trusted - {_identify(root)})
    return _identify(root) in trusted


def _identify(root: Root) -> TrustedFolder:
    return TrustedFolder(str(root.path), root.place.inode)


def _write_trusted(home: Path, trusted: AbstractSet[TrustedFolder]) -> None:
    make_private_dir(home)
    write_atomic(home / TRUST_FILE, _format_file(_TrustList(tuple(sorted(trusted)))))


def _format_file(content: Struct) -> bytes:
    return json.dumps({"version": _VERSION, **to_plain(content)}, indent=2).encode() + b"\n"
