"""Hook points for plugins: reading the files of a workspace."""

from __future__ import annotations

from dataclasses import dataclass

from retinue.core.keys import SessionKey
from retinue.hooks.bus import Point
from retinue.workspace.bootstrap import WorkspaceFile


@dataclass(frozen=True, slots=True)
class BootstrapFiles:
    """The files for a session's prompt; a subscriber may return other ones.

    `extra` are further paths in the workspace that a subscriber requests.
    """

    session: SessionKey
    files: tuple[WorkspaceFile, ...]
    extra: tuple[str, ...] = ()


BOOTSTRAP = Point[BootstrapFiles]("agent:bootstrap")
