"""Files of incoming messages: their type is checked by content, and each is stored once in the folder of its sender."""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec import Struct

from retinue.channels.channel import Arrival, DeliveryFailed, IncomingFile, ServiceChannel
from retinue.core.errors import RetinueError
from retinue.core.messages import Image
from retinue.runtime.agents.chats import find_account, max_media_bytes
from retinue.runtime.channels.receive import Attached
from retinue.runtime.channels.stored_media import store_media
from retinue.runtime.channels.transcribe import transcribe
from retinue.security.untrusted_text import literal, sanitise_line
from retinue.toolkit.documents.extract import extract_text, has_text
from retinue.toolkit.documents.file_types import PICTURES, detect_type
from retinue.toolkit.documents.package import DocumentUnreadable

if TYPE_CHECKING:
    from retinue.config.sections.tools import MediaSettings
    from retinue.runtime.channels.routing import Destination
    from retinue.runtime.turns.sessions import Sessions

log = logging.getLogger(__name__)

SPOKEN = "[Voice note]"
MAX_FILES = 10
MAX_PICTURE_BYTES = 5_000_000
FETCH_ATTEMPTS, FETCH_PAUSE_SECONDS = 3, 1.0


class FileReader(Struct, frozen=True, eq=False):
    """Reads the files of one message; without a channel, only those that came with it."""

    sessions: Sessions
    channel: ServiceChannel | None
    arrival: Arrival

    async def attach(self, destination: Destination) -> Attached:
        """Fetch and store the files; a file that cannot be read becomes a line that says so."""
        images: list[Image] = []
        spoken: list[str] = []
        lines: list[str] = []
        documents: list[tuple[str, str]] = []
        room = self._settings.documents.max_chars if self._settings.documents.enabled else 0
        for file in self.arrival.files[:MAX_FILES]:
            name = sanitise_line(literal(file.name or "file", 100))
            try:
                data = await self._fetch(file)
                media_type = await anyio.to_thread.run_sync(detect_type, data)
                stored = await anyio.to_thread.run_sync(self._store, destination, data, media_type)
            except RetinueError as error:
                log.warning("a file of a message could not be read: %s", error)
                lines.append(f"[Attached: {name}, which could not be read: {literal(str(error), 300)}]")
                continue
            if file.is_voice and not self.arrival.quoted:
                said = await self._transcribe(data, media_type)
                (spoken if said.startswith(SPOKEN) else lines).append(said)
            if media_type in PICTURES and len(data) <= MAX_PICTURE_BYTES:
                images.append(Image(media_type, base64.b64encode(data).decode()))
            facts = f"{stored} ({name}, {media_type}, {len(data):,} bytes)"
            found = await _read_text(data, media_type) if room and has_text(media_type) else _DocumentText()
            lines.append(f"[Attached: {facts}{found.note}]")
            if found.text:
                shown = found.text[:room]
                cut = (
                    f"; the first {len(shown):,} of {len(found.text):,} characters"
                    if len(shown) < len(found.text)
                    else ""
                )
                documents.append((f"[Text of {stored}{cut}]", shown))
                room -= len(shown)
        if len(self.arrival.files) > MAX_FILES:
            lines.append(f"[{len(self.arrival.files) - MAX_FILES} more files were not read]")
        return Attached(tuple(images), "\n".join(spoken), tuple(lines), tuple(documents))

    @property
    def _settings(self) -> MediaSettings:
        return self.sessions.home.config.tools.media

    async def _transcribe(self, data: bytes, media_type: str) -> str:
        """Return the words of a voice note, which count as written by its sender, or why there are none."""
        settings = self._settings.audio
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
        if file.data is not None:
            return file.data
        for attempt in range(1, FETCH_ATTEMPTS + 1):
            try:
                assert self.channel is not None
                return await self.channel.fetch_file(file, limit)
            except DeliveryFailed as error:
                if error.final or attempt == FETCH_ATTEMPTS:
                    raise
                await anyio.sleep(error.retry_after or FETCH_PAUSE_SECONDS)
        raise AssertionError

    def _store(self, destination: Destination, data: bytes, media_type: str) -> str:
        agent = self.sessions.agent(destination.route.agent)
        return store_media(agent, self.arrival.origin, destination, data, media_type)


class _DocumentText(Struct, frozen=True):
    """The text of a document, or a note why there is none."""

    text: str = ""
    note: str = ""


async def _read_text(data: bytes, media_type: str) -> _DocumentText:
    try:
        return _DocumentText(text=await anyio.to_thread.run_sync(extract_text, data, media_type))
    except DocumentUnreadable as error:
        return _DocumentText(note=f"; its text could not be read: {literal(str(error), 200)}")
