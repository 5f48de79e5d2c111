"""Hook points for plugins: reading the files of a workspace."""

from __future__ import annotations

from msgspec import Struct

from retinue.core.keys import SessionKey
from retinue.hooks import HookPoint
from retinue.workspace.bootstrap import WorkspaceFile


class BootstrapFiles(Struct, frozen=True):
    """The files for a session's prompt; a subscriber may return other ones.

    `extra` are further paths in the workspace that a subscriber requests.
    """

    session: SessionKey
    files: tuple[WorkspaceFile, ...]
    extra: tuple[str, ...] = ()


BOOTSTRAP = HookPoint[BootstrapFiles]("agent:bootstrap")
