"""The limit of the folder of a person other than the owner."""

from __future__ import annotations

from retinue.core.errors import ToolFailed
from retinue.storage.files import Root
from retinue.storage.files.errors import TooMany
from retinue.toolkit.files.paths import storage_errors_explained
from retinue.tools.tool import ToolContext

_MIN_FILE_BYTES = 4096
"""What a file or folder counts at least, so that the limit also bounds their number."""


def require_room(context: ToolContext, added: int = 0) -> None:
    """Raise `ToolFailed` if a restricted folder would hold more than it may with so many more bytes."""
    if context.max_bytes is not None:
        require_space(context.root, context.max_bytes, added)


def require_space(root: Root, limit: int, added: int = 0) -> None:
    """Raise `ToolFailed` if a folder would hold more than a limit with so many more bytes."""
    used = _measure(root, limit)
    if used + added > limit:
        raise ToolFailed(
            f"The files of this chat use {used / 1e6:.1f} of {limit / 1e6:g} MB, so there is no room for more. Delete "
            "some with apply_patch first; the owner can change the limit (`tools.fs.peopleMaxMb`)."
        )


def _measure(root: Root, limit: int) -> int:
    most = limit // _MIN_FILE_BYTES + 1
    with storage_errors_explained():
        try:
            return sum(max(entry.size, _MIN_FILE_BYTES) for _, entry in root.walk(max_entries=most))
        except TooMany:
            return most * _MIN_FILE_BYTES
