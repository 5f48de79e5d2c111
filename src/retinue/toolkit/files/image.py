"""The image tool: a picture of the workspace, put before the model."""

from __future__ import annotations

from typing import Any

from anyio import to_thread

from retinue.core.errors import ToolFailed
from retinue.core.messages import Text
from retinue.toolkit.files.paths import locate_readable, storage_errors_explained
from retinue.toolkit.files.pictures import MAX_PICTURE_BYTES, image_from_bytes
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput


class ImageArguments(Arguments):
    path: str
    question: str | None = None


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """The image tool."""
    return (image_tool(),)


def image_tool() -> Tool[ImageArguments]:
    """The tool that shows a picture."""
    return Tool(
        name="image",
        summary="Look at a picture",
        description="Look at a picture file (png, jpeg, gif, webp).",
        arguments=ImageArguments,
        run=show_image,
        deferred=True,
    )


async def show_image(arguments: ImageArguments, context: ToolContext) -> ToolOutput:
    """Load a picture for the model to see."""
    root, relative = locate_readable(context, arguments.path)
    with storage_errors_explained():
        read = await to_thread.run_sync(lambda: root.read(relative, max_bytes=MAX_PICTURE_BYTES))
    image = image_from_bytes(read.data, arguments.path)
    if image is None:
        raise ToolFailed(f"'{arguments.path}' is not a png, jpeg, gif or webp picture.")
    caption = f"{arguments.path}: {image.media_type}, {len(read.data):,} bytes."
    return ToolOutput((Text(f"{caption} {arguments.question}" if arguments.question else caption), image))
