"""Collections: the folders that the program indexes, worked out from the shelves of an agent's library."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retinue.memory.documents import WORKSPACE_FILES, WORKSPACE_FOLDER, Shelf
from retinue.memory.errors import QmdFailed

EVERY_NOTE = "**/*.md"
_LONGEST_NAME = 48
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_SPECIAL = re.compile(r"[^\w .~-]")
_KNOWN = {WORKSPACE_FILES[0]: "memory-root", WORKSPACE_FILES[1]: "memory-alt", WORKSPACE_FOLDER: "memory-dir"}


class Collection(Struct, frozen=True):
    """A folder and which of its files; `prefix` makes a file's path in it the path that people see."""

    name: str
    folder: str
    pattern: str
    prefix: str

    def note(self, relative: str) -> str:
        """The path of a file in the library."""
        return self.prefix + relative


def plan_collections(shelves: Sequence[Shelf], agent: str) -> tuple[Collection, ...]:
    """The collections for shelves, as far as there are such files; no two have the same name, or the same files."""
    planned: dict[tuple[str, str], Collection] = {}
    names: set[str] = set()
    for shelf in shelves:
        for stem, folder, pattern, prefix in _places(shelf):
            if (folder, pattern) in planned:
                continue
            name = _unique(f"{stem}-{clean_name(agent)}", names)
            names.add(name)
            planned[folder, pattern] = Collection(name, folder, pattern, prefix)
    return tuple(planned.values())


def _places(shelf: Shelf) -> Iterator[tuple[str, str, str, str]]:
    """What the collection is called, its folder, its pattern, and how paths in it start."""
    base = Path(os.path.realpath(shelf.root.path))
    for file in shelf.files:
        above, _, name = file.rpartition("/")
        if not (base / file).is_file():
            continue
        prefix = f"{shelf.prefix}{above}/" if above else shelf.prefix
        # One unknown character in the place of each that means something in a pattern.
        yield _stem(shelf, file), os.path.realpath(base / above), _SPECIAL.sub("?", name), prefix
    for folder in shelf.folders:
        if not (base / folder).is_dir():
            continue
        prefix = shelf.prefix if folder == "." else f"{shelf.prefix}{folder}/"
        yield _stem(shelf, folder), os.path.realpath(base / folder), shelf.pattern or EVERY_NOTE, prefix


def _stem(shelf: Shelf, place: str) -> str:
    if shelf.source == "sessions":
        return "sessions"
    if not shelf.prefix:
        return _KNOWN.get(place) or f"custom-{clean_name(place.removesuffix('.md'))}"
    return f"custom-{clean_name(shelf.prefix.rstrip('/').rpartition('/')[2])}"


def clean_name(text: str) -> str:
    """A name of small letters, digits and hyphens."""
    return _NOT_IN_NAMES.sub("-", text.lower()).strip("-")[:_LONGEST_NAME].strip("-") or "notes"


def _unique(name: str, taken: set[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


class _Registered(BaseModel):
    """A collection as the program has it. One that runs a command first, or leaves files out, is not one of ours."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    path: str
    pattern: str = EVERY_NOTE
    update: object = None
    ignore: object = None


class _Config(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    collections: dict[str, _Registered] = Field(default_factory=dict)


def read_registered(file: Path) -> dict[str, tuple[str, str] | None]:
    """The folders and patterns that the program knows, by name; None for one that is not as we make them.

    Raises `QmdFailed` where the program's configuration cannot be read.
    """
    from retinue.storage.frontmatter import FrontMatterError, parse_yaml

    try:
        config = _Config.model_validate(parse_yaml(file.read_text("utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, FrontMatterError, ValidationError) as error:
        raise QmdFailed(f"{file} cannot be read: {str(error).partition(chr(10))[0]}") from error
    return {
        name: None if found.update or found.ignore else (found.path, found.pattern)
        for name, found in config.collections.items()
    }


def is_registered(collection: Collection, registered: Mapping[str, tuple[str, str] | None]) -> bool:
    return registered.get(collection.name) == (collection.folder, collection.pattern)
