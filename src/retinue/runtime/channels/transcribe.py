"""Voice notes as text, by a local program or an endpoint with OpenAI's interface."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from retinue.channels.service_client import ServiceClient, Upload
from retinue.core.errors import RetinueError, ToolFailed
from retinue.storage.files.descriptors import PRIVATE_FILE
from retinue.toolkit.documents.file_types import EXTENSIONS

if TYPE_CHECKING:
    from retinue.config.sections.tools import AudioSettings, Transcriber
    from retinue.security.secrets import Secrets

log = logging.getLogger(__name__)

FILE_MARK = "{{MediaPath}}"
"""Stands for the path of the audio file in the arguments of a program."""
SECONDS = 120.0
MAX_CHARS = 20_000


async def transcribe(settings: AudioSettings, secrets: Secrets, data: bytes, media_type: str) -> str:
    """Return what is said in a recording, by the first transcriber that works.

    Raises `ToolFailed` if none does, or the recording is too large.
    """
    if len(data) > settings.max_bytes:
        raise ToolFailed(f"the recording is larger than {settings.max_bytes:,} bytes (tools.media.audio.maxBytes)")
    problem = "tools.media.audio.models is empty"
    for each in settings.models:
        try:
            with anyio.fail_after(SECONDS):
                text = (
                    await _run(each, data, media_type) if each.command else await _ask(each, secrets, data, media_type)
                )
        except (RetinueError, OSError, TimeoutError) as error:
            problem = str(error) or f"it took longer than {SECONDS:g} seconds"
            log.warning("a voice note was not transcribed: %s", problem)
            continue
        if text.strip():
            return text.strip()[:MAX_CHARS]
        problem = "nothing was understood"
    raise ToolFailed(problem)


async def _run(transcriber: Transcriber, data: bytes, media_type: str) -> str:
    """Run a program on the recording; its output is the text."""
    with tempfile.TemporaryDirectory(prefix="retinue-voice-") as folder:
        path = Path(folder) / f"voice{EXTENSIONS.get(media_type, '.bin')}"
        path.write_bytes(data)
        path.chmod(PRIVATE_FILE)
        finished = await anyio.run_process(_arguments(transcriber, path), check=False)
    if finished.returncode != 0:
        said = finished.stderr.decode("utf-8", "replace").strip()[-300:]
        raise ToolFailed(f"`{transcriber.command}` ended with {finished.returncode}: {said}")
    return finished.stdout.decode("utf-8", "replace")


def _arguments(transcriber: Transcriber, path: Path) -> Sequence[str]:
    given = [each.replace(FILE_MARK, str(path)) for each in transcriber.args]
    return [
        transcriber.command,
        *(given if any(FILE_MARK in each for each in transcriber.args) else [*given, str(path)]),
    ]


async def _ask(transcriber: Transcriber, secrets: Secrets, data: bytes, media_type: str) -> str:
    """Send the recording to an endpoint."""
    headers = {}
    if transcriber.api_key is not None:
        headers["authorization"] = f"Bearer {secrets.resolve(transcriber.api_key)}"
    client = ServiceClient(transcriber.base_url, headers)
    try:
        upload = Upload(f"voice{EXTENSIONS.get(media_type, '.bin')}", data, media_type)
        form = {"model": transcriber.model, "response_format": "json"}
        reply = await client.request("POST", "audio/transcriptions", form=form, files={"file": upload}, seconds=SECONDS)
    finally:
        await client.close()
    if reply.status != 200:
        raise ToolFailed(f"the transcription endpoint answered {reply.status}")
    return str(reply.json().get("text") or "")
