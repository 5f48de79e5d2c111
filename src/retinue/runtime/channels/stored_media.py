"""Files of messages in the workspace: each is stored once, labelled as untrusted, and deleted when it is old."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from retinue.core.envelope import Origin, PeerKind
from retinue.core.errors import StorageError
from retinue.core.labels import Label
from retinue.core.people import PEOPLE_FOLDER, Person, Role
from retinue.runtime.agents.confinement import enter_folder
from retinue.storage.files import EntryKind
from retinue.storage.labels.file_labels import Via
from retinue.toolkit.documents.file_types import EXTENSIONS
from retinue.toolkit.files.quota import require_space

if TYPE_CHECKING:
    from retinue.runtime.agents.agent import Agent
    from retinue.runtime.channels.routing import Destination
    from retinue.storage.files import FolderEntry, Root
    from retinue.storage.labels.file_labels import FileLabels

log = logging.getLogger(__name__)

FOLDER = "media"
"""The folder with the files of messages, in the workspace or in a person's folder of it."""
_NAME = re.compile(r"[0-9a-f]{20}\.[a-z0-9]{2,5}")
"""Only such files are deleted: the folder may also contain files of the agent."""
_REFRESHED_AFTER = timedelta(days=1)


def store_media(agent: Agent, origin: Origin, destination: Destination, data: bytes, media_type: str) -> str:
    """Store a file under a name made of its content; returns its path for the agent.

    Raises `ToolFailed` if the folder of the sender has no room for it.
    """
    root, below, limit = _folder_of(agent, origin, destination)
    name = f"{FOLDER}/{hashlib.sha256(data).hexdigest()[:20]}{EXTENSIONS.get(media_type, '.bin')}"
    known = next((each for each in _stored(root, FOLDER) if f"{FOLDER}/{each.name}" == name), None)
    if known is None and limit is not None:
        require_space(root, limit, len(data))
    _labels(agent).record([f"{below}{name}"], Label.UNTRUSTED, Via.TOOL)
    # A file that arrives again counts as new, and one that was changed or is incomplete is replaced.
    old = int((agent.home.clock.now() - _REFRESHED_AFTER).timestamp() * 1e9)
    if known is None or known.size != len(data) or known.mtime_ns < old:
        root.make_dir(FOLDER)
        root.write(name, data)
    return name


def expire_media(agent: Agent, before: datetime) -> int:
    """Delete the files of messages that last arrived before a time; returns how many."""
    root, gone = agent.workspace.root, []
    limit = int(before.timestamp() * 1e9)
    for folder in (FOLDER, *(f"{PEOPLE_FOLDER}/{each.name}/{FOLDER}" for each in _entries(root, PEOPLE_FOLDER))):
        for entry in _stored(root, folder):
            if entry.mtime_ns < limit:
                try:
                    root.remove(f"{folder}/{entry.name}")
                except StorageError as error:
                    log.warning("an old file of a message was not deleted: %s", error)
                    continue
                gone.append(f"{folder}/{entry.name}")
    if gone:
        _labels(agent).forget(gone)
    return len(gone)


def _stored(root: Root, folder: str) -> Iterator[FolderEntry]:
    return (each for each in _entries(root, folder) if each.kind is EntryKind.FILE and _NAME.fullmatch(each.name))


def _entries(root: Root, folder: str) -> list[FolderEntry]:
    try:
        return root.entries(folder)
    except StorageError:
        return []


def _labels(agent: Agent) -> FileLabels:
    return agent.shared.memories.writes(agent.workspace).files


def _folder_of(agent: Agent, origin: Origin, destination: Destination) -> tuple[Root, str, int | None]:
    """Return the folder of the sender, its path in the workspace, and its limit; the owner has the workspace."""
    root = agent.workspace.root
    if destination.owner:
        return root, "", None
    if origin.kind is not PeerKind.DIRECT:
        person = Person(Role.MEMBER, f"{origin.channel}:{origin.peer}")
    else:
        role = Role.CONTACT if destination.contact else Role.GUEST
        person = Person(role, f"{origin.channel}:{origin.writer}")
    root.make_dir(person.folder)
    limit = agent.home.config.tools.fs.people_max_mb * 1_000_000
    return enter_folder(agent.workspace, root, person.folder), f"{person.folder}/", limit
