"""Files of incoming messages: their type is checked by content, and each is stored once in the folder of its sender."""

from __future__ import annotations

import base64
import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec import Struct

from retinue.channels.channel import Arrival, DeliveryFailed, IncomingFile, ServiceChannel
from retinue.channels.file_types import EXTENSIONS, PICTURES, detect_type
from retinue.core.envelope import PeerKind
from retinue.core.errors import RetinueError
from retinue.core.labels import Label
from retinue.core.messages import Image
from retinue.core.people import Person, Role
from retinue.runtime.agents.chats import find_account, max_media_bytes
from retinue.runtime.agents.confinement import enter_folder
from retinue.runtime.channels.receive import Attached
from retinue.runtime.channels.transcribe import transcribe
from retinue.security.untrusted_text import literal, sanitise_line
from retinue.storage.labels.file_labels import Via

if TYPE_CHECKING:
    from retinue.runtime.agents.agent import Agent
    from retinue.runtime.channels.routing import Destination
    from retinue.runtime.turns.sessions import Sessions
    from retinue.storage.files import Root

log = logging.getLogger(__name__)

FOLDER = "media"
"""The folder with the files of messages, in the workspace or in a person's folder of it."""
SPOKEN = "[Voice note]"
MAX_FILES = 10
MAX_PICTURE_BYTES = 5_000_000
FETCH_ATTEMPTS, FETCH_PAUSE_SECONDS = 3, 1.0


class FileReader(Struct, frozen=True, eq=False):
    """Reads the files of one message."""

    sessions: Sessions
    channel: ServiceChannel
    arrival: Arrival

    async def attach(self, destination: Destination) -> Attached:
        """Fetch and store the files; a file that cannot be read becomes a line that says so."""
        images: list[Image] = []
        spoken: list[str] = []
        lines: list[str] = []
        for file in self.arrival.files[:MAX_FILES]:
            name = sanitise_line(literal(file.name or "file", 100))
            try:
                data = await self._fetch(file)
            except RetinueError as error:
                log.warning("a file of a message could not be read: %s", error)
                lines.append(f"[Attached: {name}, which could not be read: {literal(str(error), 200)}]")
                continue
            media_type = detect_type(data)
            if file.is_voice and not self.arrival.quoted:
                said = await self._transcribe(data, media_type)
                (spoken if said.startswith(SPOKEN) else lines).append(said)
            stored = await anyio.to_thread.run_sync(self._store, destination, data, media_type)
            if media_type in PICTURES and len(data) <= MAX_PICTURE_BYTES:
                images.append(Image(media_type, base64.b64encode(data).decode()))
            lines.append(f"[Attached: {stored} ({name}, {media_type}, {len(data):,} bytes)]")
        if len(self.arrival.files) > MAX_FILES:
            lines.append(f"[{len(self.arrival.files) - MAX_FILES} more files were not read]")
        return Attached(tuple(images), "\n".join(spoken), tuple(lines))

    async def _transcribe(self, data: bytes, media_type: str) -> str:
        """Return the words of a voice note, which count as written by its sender, or why there are none."""
        settings = self.sessions.home.config.tools.media.audio
        if not settings.enabled or not settings.models:
            return "[A voice note that was not transcribed: tools.media.audio.models is not set]"
        try:
            return f"{SPOKEN}\n{await transcribe(settings, self.sessions.shared.secrets, data, media_type)}"
        except RetinueError as error:
            return f"[A voice note that was not transcribed: {literal(str(error), 200)}]"

    async def _fetch(self, file: IncomingFile) -> bytes:
        home, origin = self.sessions.home, self.arrival.origin
        found = find_account(home, origin.channel, origin.account)
        limit = max_media_bytes(found.channel, home.config.agents.defaults) if found is not None else 0
        if file.size > limit:
            raise DeliveryFailed(f"it is larger than {limit:,} bytes (mediaMaxMb)")
        for attempt in range(1, FETCH_ATTEMPTS + 1):
            try:
                return await self.channel.fetch_file(file, limit)
            except DeliveryFailed as error:
                if error.final or attempt == FETCH_ATTEMPTS:
                    raise
                await anyio.sleep(error.retry_after or FETCH_PAUSE_SECONDS)
        raise AssertionError

    def _store(self, destination: Destination, data: bytes, media_type: str) -> str:
        """Store a file under a name made of its content, labelled as untrusted; returns the path for the agent."""
        agent = self.sessions.agent(destination.route.agent)
        root, below = self._folder_of(agent, destination)
        name = f"{FOLDER}/{hashlib.sha256(data).hexdigest()[:20]}{EXTENSIONS.get(media_type, '.bin')}"
        labels = agent.shared.memories.writes(agent.workspace).files
        labels.record([f"{below}{name}"], Label.UNTRUSTED, Via.TOOL)
        if not (Path(root.path) / name).is_file():
            root.make_dir(FOLDER)
            root.write(name, data)
        return name

    def _folder_of(self, agent: Agent, destination: Destination) -> tuple[Root, str]:
        """Return the folder of the sender, and its path in the workspace: the owner's is the workspace itself."""
        origin, root = self.arrival.origin, agent.workspace.root
        if destination.owner:
            return root, ""
        if origin.kind is not PeerKind.DIRECT:
            person = Person(Role.MEMBER, f"{origin.channel}:{origin.peer}")
        else:
            role = Role.CONTACT if destination.contact else Role.GUEST
            person = Person(role, f"{origin.channel}:{origin.writer}")
        root.make_dir(person.folder)
        return enter_folder(agent.workspace, root, person.folder), f"{person.folder}/"
