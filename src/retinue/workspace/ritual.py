"""What Retinue remembers about a workspace, and whether its first conversation is over."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from enum import StrEnum
from functools import cache
from importlib import resources

from msgspec import Struct

from retinue.core.errors import StorageError
from retinue.storage.files import Links, NotThere, Root
from retinue.storage.frontmatter import split_front_matter
from retinue.workspace.bootstrap import MAX_FILE_BYTES, RITUAL_FILE

log = logging.getLogger(__name__)

STATE_FILE = ".retinue/workspace-state.json"
CREATOR = "retinue"
PROFILE_FILES = ("IDENTITY.md", "USER.md")
"""The files that the first conversation fills in; SOUL.md may well stay as it is."""

_VERSION = 1
_STATE_BYTES = 65_536


class RitualState(StrEnum):
    """Where the first conversation stands."""

    PENDING = "pending"
    COMPLETE = "complete"
    LEFTOVER = "leftover"


class WorkspaceState(Struct, frozen=True):
    """The content of the state file.

    A cloned repository can carry a state file of its own, so `created_by` counts only together with `folder`, the inode
    of the folder that was made.
    """

    bootstrap_seeded_at: str | None = None
    setup_completed_at: str | None = None
    created_by: str | None = None
    folder: int | None = None

    def was_made_here(self, root: Root) -> bool:
        """Whether Retinue made this very folder, so that what it holds is the agent's own."""
        return self.created_by == CREATOR and self.folder == root.place.inode


def judge_ritual(*, file_present: bool, completed: bool, profile_filled: bool) -> RitualState:
    """The agent ends the ritual by deleting the file; one that it forgot to delete is a leftover."""
    if not file_present:
        return RitualState.COMPLETE
    return RitualState.LEFTOVER if completed or profile_filled else RitualState.PENDING


def ritual_state(root: Root) -> RitualState:
    """Where the first conversation of a workspace stands; one look at the disk once it is over."""
    try:
        present = root.identify(RITUAL_FILE, links=Links.INSIDE) is not None
    except StorageError:
        present = True
    if not present:
        return RitualState.COMPLETE
    completed = load_state(root).setup_completed_at is not None
    return judge_ritual(file_present=True, completed=completed, profile_filled=completed or _is_profile_filled(root))


def load_state(root: Root) -> WorkspaceState:
    """The state of a workspace; a missing or broken file is an empty one."""
    try:
        found = json.loads(root.read(STATE_FILE, max_bytes=_STATE_BYTES).data)
    except NotThere:
        return WorkspaceState()
    except (StorageError, ValueError, RecursionError) as error:
        log.warning("%s cannot be read (%s); it is left as it is and taken as empty", STATE_FILE, error)
        return WorkspaceState()
    if not isinstance(found, dict):
        log.warning("%s holds no object; it is left as it is and taken as empty", STATE_FILE)
        return WorkspaceState()

    def text(name: str) -> str | None:
        value = found.get(name)
        return value if isinstance(value, str) else None

    folder = found.get("folder")
    return WorkspaceState(
        text("bootstrapSeededAt"),
        text("setupCompletedAt"),
        text("createdBy"),
        folder if isinstance(folder, int) else None,
    )


def save_state(root: Root, state: WorkspaceState) -> None:
    """Write the state of a workspace."""
    content = {
        "version": _VERSION,
        "bootstrapSeededAt": state.bootstrap_seeded_at,
        "setupCompletedAt": state.setup_completed_at,
        "createdBy": state.created_by,
        "folder": state.folder,
    }
    root.write(STATE_FILE, json.dumps(content, indent=2).encode() + b"\n")


def format_moment(now: datetime) -> str:
    """A time as the state file spells it."""
    return now.isoformat(timespec="seconds")


@cache
def load_template(name: str) -> str:
    """The text that a new workspace's file begins with."""
    text = resources.files("retinue.workspace").joinpath("templates", name).read_text("utf-8")
    return split_front_matter(text)[1].strip() + "\n"


def _is_profile_filled(root: Root) -> bool:
    """Whether there are profile files and none of them is still the template."""
    found = {name: text for name in PROFILE_FILES if (text := _read_text(root, name)) is not None}
    return bool(found) and all(text.split() != load_template(name).split() for name, text in found.items())


def _read_text(root: Root, name: str) -> str | None:
    try:
        found = root.read(name, max_bytes=MAX_FILE_BYTES, links=Links.INSIDE)
    except StorageError:
        return None
    return found.data.decode("utf-8-sig", "replace")
