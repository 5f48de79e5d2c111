"""What the sandbox refused to a command that failed, found in its output.

A path outside of a namespace looks as if it did not exist, and a host as if its name were unknown. The system does not
report what was refused, so the messages of programs are read. They are untrusted: they only suggest what to ask for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from retinue.sandbox.confinement import Confinement

MOST = 5
_FAILED = re.compile(
    r"Permission denied|Read-only file system|No such file or directory|Operation not permitted|cannot access"
    r"|EACCES|ENOENT|EROFS"
)
_PATH = re.compile(r"/[^\s'\"`‘’“”:;,()<>|]+")
_HOST = re.compile(
    r"(?:resolve(?: host(?:name| address)?)?:?|ENOTFOUND|EAI_AGAIN|Failed to connect to)"
    r"\s+['\"‘“]?([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)"
)
_BY_PROXY = re.compile(r"([A-Za-z0-9.-]+):(\d+) is not allowed in this sandbox")
_OF_ITS_OWN = ("/proc/", "/dev/", "/home/agent/")
_MOST_CHARS = 50_000


class Refusal(Struct, frozen=True):
    """A path outside of the sandbox, or a host of the network, that a command needs."""

    kind: Literal["path", "host"]
    name: str


def find_refusals(output: str, confinement: Confinement) -> tuple[Refusal, ...]:
    """Return what the sandbox probably refused, by the end of the output of a command."""
    text = output[-_MOST_CHARS:]
    hosts = [Refusal("host", match[1].lower()) for match in (*_BY_PROXY.finditer(text), *_HOST.finditer(text))]
    paths = [Refusal("path", path) for path in _refused_paths(text, confinement)]
    return tuple(dict.fromkeys((*hosts, *paths)))[:MOST]


def _refused_paths(text: str, confinement: Confinement) -> Iterator[str]:
    """Yield paths that exist outside, or could be created there, and that commands cannot use."""
    own = (confinement.visible, confinement.temporary, confinement.user_home)
    for line in text.splitlines():
        found = _FAILED.search(line)
        if found is None:
            continue
        for match in _PATH.finditer(line):
            path = os.path.normpath(match[0])
            usable = any(Path(path).is_relative_to(place) for place in own)
            if not usable and not path.startswith(_OF_ITS_OWN) and _is_there(Path(path), found[0]):
                yield path


def _is_there(path: Path, failure: str) -> bool:
    """Return whether a path exists outside; a missing one counts if its folder exists and writing was refused."""
    missing = failure.startswith(("No such", "ENOENT", "cannot access"))
    return os.path.lexists(path) or (not missing and path.parent.is_dir())
