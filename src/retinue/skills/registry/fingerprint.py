"""The files of a skill that are published, and the hashes that registries identify their content by."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from retinue.skills.integrity.contents import SkillContent, read_folder

GENERATED = frozenset(("_meta.json", "skill-card.md"))
"""Files that registries add to the archives that they send."""
_IGNORE_FILES = (".gitignore", ".clawhubignore", ".clawdhubignore")
# Names are sorted as JavaScript's `localeCompare` does, so that fingerprints are those of other clients.
_PRIMARY = {
    letter: place
    for place, letter in enumerate(" _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz", 1)
}


def sort_key(name: str) -> tuple[Any, ...]:
    """Return a key for the order of file names: first without accents and case, then accents, then small letters."""
    decomposed = unicodedata.normalize("NFD", name)
    base = [letter for letter in decomposed if not unicodedata.combining(letter)]
    accents = [ord(letter) for letter in decomposed if unicodedata.combining(letter)]
    folded = [letter.lower() for letter in base]
    primary = [(_PRIMARY.get(letter, len(_PRIMARY) + 1), letter) for letter in folded]
    return primary, accents, [letter != small for letter, small in zip(base, folded, strict=True)], name


def fingerprint(hashes: Mapping[str, str]) -> str:
    """Return the registry's hash over the names and SHA-256 hashes of all files."""
    lines = "\n".join(f"{name}:{hashes[name]}" for name in sorted(hashes, key=sort_key))
    return hashlib.sha256(lines.encode()).hexdigest()


def hash_contents(files: Mapping[str, SkillContent]) -> dict[str, str]:
    """Return the SHA-256 hash of every file."""
    return {name: hashlib.sha256(file.data).hexdigest() for name, file in files.items()}


def folder_hash(files: Mapping[str, SkillContent]) -> str:
    """Return the hash that registries use for a folder of a GitHub repository."""
    hashes = hash_contents(files)
    lines = "\n".join(f"{name}\0{len(files[name].data)}\0{hashes[name]}" for name in sorted(files, key=sort_key))
    return hashlib.sha256(lines.encode()).hexdigest()


def content_type(name: str) -> str:
    """Return the media type of a file."""
    import mimetypes

    return "text/markdown" if name.endswith(".md") else mimetypes.guess_type(name)[0] or "application/octet-stream"


def is_published(name: str) -> bool:
    """Return whether a file with this name can be part of a published version."""
    parts = name.split("/")
    hidden = any(part.startswith(".") or part == "node_modules" for part in parts)
    return not hidden and name.lower() != "skill-card.md"


def read_publishable(folder: Path) -> dict[str, SkillContent]:
    """Read the files of a skill that are published: no hidden files, and none that its ignore files name."""
    files = read_folder(folder)
    patterns = [line for name in _IGNORE_FILES if name in files for line in _lines(files[name])]
    names: Iterable[str] = filter(is_published, files)
    if patterns:
        from pathspec import GitIgnoreSpec

        ignored = GitIgnoreSpec.from_lines(patterns)
        names = [name for name in names if not ignored.match_file(name)]
    return {name: files[name] for name in names}


def _lines(file: SkillContent) -> list[str]:
    return file.data.decode(errors="replace").splitlines()
