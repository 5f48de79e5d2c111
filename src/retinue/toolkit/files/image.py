"""The image tool, and pictures in the formats that models accept."""

from __future__ import annotations

import base64
from typing import Any

from anyio import to_thread

from retinue.core.errors import ToolFailed
from retinue.core.messages import Image, Text
from retinue.toolkit.files.paths import locate_readable, storage_errors_explained
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput

MAX_PICTURE_BYTES = 5_000_000

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def media_type_of(data: bytes) -> str | None:
    """Return the media type of a picture by its first bytes, or None."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), None)


def image_from_bytes(data: bytes, name: str) -> Image | None:
    """Return a picture as message content, or None if the bytes are not a picture."""
    kind = media_type_of(data)
    if kind is None:
        return None
    if len(data) > MAX_PICTURE_BYTES:
        raise ToolFailed(
            f"The picture '{name}' has {len(data):,} bytes; at most {MAX_PICTURE_BYTES:,} can be shown. Scale it down."
        )
    return Image(kind, base64.b64encode(data).decode("ascii"))


class ImageArguments(Arguments):
    path: str
    question: str | None = None


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the image tool."""
    return (
        Tool(
            name="image",
            summary="Look at a picture",
            description="Look at a picture file (png, jpeg, gif, webp).",
            arguments=ImageArguments,
            run=show_image,
            deferred=True,
        ),
    )


async def show_image(arguments: ImageArguments, context: ToolContext) -> ToolOutput:
    """Load a picture and return it to the model."""
    root, relative = locate_readable(context, arguments.path)
    with storage_errors_explained():
        read = await to_thread.run_sync(lambda: root.read(relative, max_bytes=MAX_PICTURE_BYTES))
    image = image_from_bytes(read.data, arguments.path)
    if image is None:
        raise ToolFailed(f"'{arguments.path}' is not a png, jpeg, gif or webp picture.")
    caption = f"{arguments.path}: {image.media_type}, {len(read.data):,} bytes."
    return ToolOutput((Text(f"{caption} {arguments.question}" if arguments.question else caption), image))
