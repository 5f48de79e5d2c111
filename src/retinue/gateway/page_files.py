"""The files of the control page: in the installed package, or in the checkout where they were built."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue import __version__

INDEX = "index.html"
MEDIA_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "gateway" / "page", _PACKAGE.parents[1] / "page" / "dist")

NOT_BUILT = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Retinue</title></head>
<body>
<h1>Retinue is running, but its page was not built</h1>
<p>The page is built when Retinue is installed, for which npm must reach its registry. In a checkout, build it with
<code>make page</code>. After an installation without it, install again with a network connection:
<code>pip install --force-reinstall --no-deps retinue</code>.</p>
<p>Everything else works: <code>retinue chat</code> in a terminal, channels, and the gateway's API.</p>
</body>
</html>
"""


class PageInfo(Struct, frozen=True, rename="camel"):
    """The built page in numbers; the first view is what a browser loads before it shows the chat."""

    built: bool
    version: str
    bytes: int = 0
    gzip: int = 0
    first_view_gzip: int = 0


def find_page() -> Path | None:
    """Return the folder of the built page, or None if it was not built."""
    return next((place for place in _PLACES if (place / INDEX).is_file()), None)


def find_file(folder: Path, name: str) -> Path | None:
    """Return a file of the page by its path, or None if the page has no such file."""
    path = folder / name
    is_served = path.suffix in MEDIA_TYPES and not any(part.startswith(".") for part in Path(name).parts)
    return path if is_served and path.is_file() else None


def describe_page(folder: Path | None) -> PageInfo:
    """Measure the page, compressed as the gateway sends it."""
    if folder is None:
        return PageInfo(built=False, version=__version__)
    files = [path for path in folder.rglob("*") if path.suffix in MEDIA_TYPES and path.is_file()]
    sizes = {path.relative_to(folder).as_posix(): _compressed_size(path) for path in files}
    return PageInfo(
        built=True,
        version=__version__,
        bytes=sum(path.stat().st_size for path in files),
        gzip=sum(sizes.values()),
        first_view_gzip=sum(sizes.get(name, 0) for name in _first_view(folder)),
    )


def _compressed_size(path: Path) -> int:
    sent = path.with_name(f"{path.name}.gz")
    return sent.stat().st_size if sent.is_file() else len(gzip.compress(path.read_bytes()))


def _first_view(folder: Path) -> set[str]:
    """The files that the index loads: the entry, what it imports at once, and their styles."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    found = {INDEX, "icon.svg"}
    waiting = [name for name, chunk in manifest.items() if chunk.get("isEntry")]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        chunk = manifest[name]
        found |= {chunk["file"], *chunk.get("css", ())}
        waiting += chunk.get("imports", ())
    return found
