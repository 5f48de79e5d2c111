"""Pictures in the formats that models read."""

from __future__ import annotations

import base64

from retinue.core.errors import ToolFailed
from retinue.core.messages import Image

MAX_PICTURE_BYTES = 5_000_000

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def media_type_of(data: bytes) -> str | None:
    """The media type of a picture by its first bytes; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), None)


def image_from_bytes(data: bytes, name: str) -> Image | None:
    """The picture as message content; None where the bytes are no picture."""
    kind = media_type_of(data)
    if kind is None:
        return None
    if len(data) > MAX_PICTURE_BYTES:
        raise ToolFailed(
            f"The picture '{name}' has {len(data):,} bytes; at most {MAX_PICTURE_BYTES:,} can be shown. Scale it down."
        )
    return Image(kind, base64.b64encode(data).decode("ascii"))
