"""Where plugins may step in when a workspace is read."""

from __future__ import annotations

from msgspec import Struct

from retinue.core.keys import SessionKey
from retinue.hooks.bus import Point
from retinue.workspace.bootstrap import WorkspaceFile


class BootstrapFiles(Struct, frozen=True):
    """The files about to be put into a session's prompt; a subscriber may return other ones.

    `extra` are paths in the workspace that a subscriber asks for besides; they are read where all files are.
    """

    session: SessionKey
    files: tuple[WorkspaceFile, ...]
    extra: tuple[str, ...] = ()


BOOTSTRAP = Point[BootstrapFiles]("agent:bootstrap")
