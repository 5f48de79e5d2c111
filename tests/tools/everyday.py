"""Commands of every day, and how many of them can be understood without a shell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from retinue.tools.shell.analysis import AnalysedCommand, CommandLocation, OpenFolderListing, analyse
from tests.tools.dialects import HOME, make_workspace, opened

LIST = Path(__file__).with_name("everyday.txt")


def read_everyday() -> list[str]:
    """The commands of the list, one a line."""
    return [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]


def share_analysable(commands: Sequence[str], place: Path) -> float:
    """The share of commands that nobody has to be asked about because of how they are written."""
    with opened(make_workspace(place)) as folder:
        where = CommandLocation(HOME, OpenFolderListing(folder))
        return sum(isinstance(analyse(text, where), AnalysedCommand) for text in commands) / len(commands)
