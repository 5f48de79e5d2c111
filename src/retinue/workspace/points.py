"""Where plugins may step in when a workspace is read."""

from __future__ import annotations

from dataclasses import dataclass

from retinue.core.keys import SessionKey
from retinue.hooks.bus import HookPoint
from retinue.workspace.bootstrap import WorkspaceFile


@dataclass(frozen=True, slots=True)
class BootstrapFiles:
    """The files about to be put into a session's prompt; a subscriber may return other ones.

    `extra` are paths in the workspace that a subscriber asks for besides; they are read where all files are.
    """

    session: SessionKey
    files: tuple[WorkspaceFile, ...]
    extra: tuple[str, ...] = ()


BOOTSTRAP = HookPoint[BootstrapFiles]("agent:bootstrap")
