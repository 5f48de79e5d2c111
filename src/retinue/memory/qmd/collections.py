"""Collections: the folders that the QMD program indexes, derived from the note folders of an agent."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from retinue.memory.notes import WORKSPACE_FILES, WORKSPACE_FOLDER, NoteFolder
from retinue.memory.qmd.program import QmdFailed

EVERY_NOTE = "**/*.md"
_MAX_NAME_CHARS = 48
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_SPECIAL = re.compile(r"[^\w .~-]")
_KNOWN = {WORKSPACE_FILES[0]: "memory-root", WORKSPACE_FILES[1]: "memory-alt", WORKSPACE_FOLDER: "memory-dir"}


class Collection(Struct, frozen=True):
    """A folder and a pattern for its files; `prefix` plus a file's path in it is the path of the note."""

    name: str
    folder: str
    pattern: str
    prefix: str

    def note(self, relative: str) -> str:
        """Return the path of the note for a file of the collection."""
        return self.prefix + relative


def plan_collections(note_folders: Sequence[NoteFolder], agent: str) -> tuple[Collection, ...]:
    """Return the collections for the note folders that exist; no two have the same name or the same files."""
    planned: dict[tuple[str, str], Collection] = {}
    names: set[str] = set()
    for note_folder in note_folders:
        for stem, folder, pattern, prefix in _places(note_folder):
            if (folder, pattern) in planned:
                continue
            name = _unique(f"{stem}-{clean_name(agent)}", names)
            names.add(name)
            planned[folder, pattern] = Collection(name, folder, pattern, prefix)
    return tuple(planned.values())


def _places(note_folder: NoteFolder) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name, folder, pattern and path prefix of each collection."""
    base = Path(os.path.realpath(note_folder.root.path))
    for file in note_folder.files:
        above, _, name = file.rpartition("/")
        if not (base / file).is_file():
            continue
        prefix = f"{note_folder.prefix}{above}/" if above else note_folder.prefix
        # `?` matches the characters that have a meaning in a pattern.
        yield _stem(note_folder, file), os.path.realpath(base / above), _SPECIAL.sub("?", name), prefix
    for folder in note_folder.folders:
        if not (base / folder).is_dir():
            continue
        prefix = note_folder.prefix if folder == "." else f"{note_folder.prefix}{folder}/"
        yield _stem(note_folder, folder), os.path.realpath(base / folder), note_folder.pattern or EVERY_NOTE, prefix


def _stem(note_folder: NoteFolder, place: str) -> str:
    if note_folder.source == "sessions":
        return "sessions"
    if not note_folder.prefix:
        return _KNOWN.get(place) or f"custom-{clean_name(place.removesuffix('.md'))}"
    return f"custom-{clean_name(note_folder.prefix.rstrip('/').rpartition('/')[2])}"


def clean_name(text: str) -> str:
    """Return a name of lower-case letters, digits and hyphens."""
    return _NOT_IN_NAMES.sub("-", text.lower()).strip("-")[:_MAX_NAME_CHARS].strip("-") or "notes"


def _unique(name: str, taken: set[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


class _Registered(msgspec.Struct, frozen=True):
    """A collection in the program's configuration. One with `update` or `ignore` was not created by Retinue."""

    path: str
    pattern: str = EVERY_NOTE
    update: object = None
    ignore: object = None


class _Config(msgspec.Struct, frozen=True):
    collections: dict[str, _Registered] = {}


def read_registered(file: Path) -> dict[str, tuple[str, str] | None]:
    """Return the registered folders and patterns by name; None for a collection not created by Retinue.

    Raise `QmdFailed` if the program's configuration cannot be read.
    """
    from retinue.storage.frontmatter import FrontMatterError, parse_yaml

    try:
        config = msgspec.convert(parse_yaml(file.read_text("utf-8")), _Config)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, FrontMatterError, msgspec.ValidationError) as error:
        raise QmdFailed(f"{file} cannot be read: {str(error).partition(chr(10))[0]}") from error
    return {
        name: None if found.update or found.ignore else (found.path, found.pattern)
        for name, found in config.collections.items()
    }


def is_registered(collection: Collection, registered: Mapping[str, tuple[str, str] | None]) -> bool:
    return registered.get(collection.name) == (collection.folder, collection.pattern)
