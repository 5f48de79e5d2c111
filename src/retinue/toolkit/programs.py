"""Finding the programs of a command: once, by absolute path, and never inside the workspace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from retinue.toolkit.environment import PATH, TRUSTED_FOLDERS
from retinue.tools.allowlist import Argv
from retinue.tools.commands import Ground, Segment
from retinue.tools.syntax import Analysed
from retinue.tools.wrappers import Refused, unwrap


class ProgramFolders(Struct, frozen=True):
    """Where programs may come from: those that run unasked from the system's own folders alone."""

    workspace: Path
    prepended: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()

    def find(self, name: str, ground: Ground | None) -> str | None:
        """The absolute path of a program; None where there is none that may be used."""
        if "/" in name:
            return (
                self._usable(name)
                if name.startswith("/") and ground not in (Ground.HARMLESS, Ground.SAFE_BIN)
                else None
            )
        for folder in self._folders(ground):
            path = Path(folder, name)
            if path.is_file() and os.access(path, os.X_OK):
                return self._usable(str(path))
        return None

    def _folders(self, ground: Ground | None) -> Sequence[str]:
        match ground:
            case Ground.HARMLESS:
                return TRUSTED_FOLDERS
            case Ground.SAFE_BIN:
                return (*TRUSTED_FOLDERS, *self.trusted)
            case _:
                return (*self.prepended, *PATH.split(":"))

    def _usable(self, path: str) -> str | None:
        """The path, unless it or what it stands for lies in the workspace, where an agent can write."""
        inside = self.workspace.resolve()
        real = Path(path).resolve()
        if real.is_relative_to(inside) or Path(path).is_relative_to(inside) or not real.is_file():
            return None
        return path if os.access(path, os.X_OK) else None


def locate_programs(command: Analysed, grounds: Sequence[Segment], folders: ProgramFolders) -> Analysed | None:
    """The same command with every program by its absolute path; None where one is not found.

    `grounds` tell for each program why it may run; there are none where a person agreed.
    """
    found: list[Argv] = []
    for position, argv in enumerate(command.commands):
        located = _locate(argv, grounds[position].ground if grounds else None, folders)
        if located is None:
            return None
        found.append(located)
    return command.with_commands(tuple(found))


def _locate(argv: Argv, ground: Ground | None, folders: ProgramFolders) -> Argv | None:
    layers = unwrap(argv)
    layers = (argv,) if isinstance(layers, Refused) else layers
    # a rule speaks of the program: the wrapper around it must be the system's own
    around = Ground.HARMLESS if ground in (Ground.PATTERN, Ground.SKILL) else ground
    words: list[str] = []
    for position, layer in enumerate(layers, 1):
        path = folders.find(layer[0], ground if position == len(layers) else around)
        if path is None:
            return None
        words += (path, *layer[1:])
    return tuple(words)
