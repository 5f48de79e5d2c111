"""The agent's identity from IDENTITY.md: a few short facts for the prompt, the terminal and the web page."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import fields

from retinue.core.errors import StorageError
from retinue.storage.files import Links, NotThere, Root
from retinue.storage.files.openat import split_path
from retinue.storage.frontmatter import FrontMatterError, YamlValue, parse_yaml, split_front_matter

IDENTITY_FILE = "IDENTITY.md"

_MAX_BYTES = 2_097_152
_LIMITS = {"name": 64, "emoji": 16, "creature": 120, "vibe": 200, "theme": 64, "avatar": 2_000}
_MAX_PICTURE_CHARS = 65_536
_FACT_LINE = re.compile(r"^\s*[-*+]\s+(?:\*\*|__)?(?P<name>[A-Za-z]+)\s*(?::(?:\*\*|__)?|(?:\*\*|__):)(?P<value>.*)$")
_PLACEHOLDER = re.compile(r"\(.*\)|\[.*\]|[-–—…?]*")
_JOINERS = "\u200d\ufe0e\ufe0f"


class AgentIdentity(Struct, frozen=True):
    """The facts in IDENTITY.md; an absent one is None. `problem` says why the front matter was not read."""

    name: str | None = None
    emoji: str | None = None
    creature: str | None = None
    vibe: str | None = None
    theme: str | None = None
    avatar: str | None = None
    problem: str | None = None


FACTS = tuple(field.name for field in fields(AgentIdentity) if field.name != "problem")


def read_identity(root: Root) -> AgentIdentity:
    """Return the identity of a workspace; empty if there is no file, with a problem if it cannot be read."""
    try:
        found = root.read(IDENTITY_FILE, max_bytes=_MAX_BYTES, links=Links.INSIDE, single_link=True)
    except NotThere:
        return AgentIdentity()
    except StorageError as error:
        return AgentIdentity(problem=str(error))
    return parse_identity(found.data.decode("utf-8-sig", "replace"), workspace=root.path)


def parse_identity(text: str, *, workspace: Path | None = None) -> AgentIdentity:
    """Parse the facts of an IDENTITY.md: from its front matter, else from lines such as `- **Name:** Ada`."""
    front, body = split_front_matter(text)
    problem = None
    given: Mapping[str, YamlValue] = {}
    if front is not None:
        try:
            given = {name.lower(): value for name, value in parse_yaml(front).items()}
        except FrontMatterError as error:
            problem = f"{IDENTITY_FILE}: the front matter was not read, {error}"
    facts = _facts_in_lines(body) | {name: fact for name in FACTS if (fact := _as_text(given.get(name))) is not None}
    clean = {name: _clean_fact(name, value, workspace) for name, value in facts.items()}
    return AgentIdentity(**clean, problem=problem)


def format_front_matter(front: str) -> str:
    """Format the facts of the front matter as Markdown lines, since the prompt does not contain front matter."""
    identity = parse_identity(f"---\n{front}\n---\n")
    facts = ((name, getattr(identity, name)) for name in FACTS if name != "avatar")
    return "".join(f"- **{name.capitalize()}:** {value}\n" for name, value in facts if value)


def _facts_in_lines(body: str) -> dict[str, str]:
    facts: dict[str, str] = {}
    for line in body.splitlines():
        found = _FACT_LINE.match(line)
        if found and found["name"].lower() in FACTS:
            facts.setdefault(found["name"].lower(), found["value"])
    return facts


def _as_text(value: YamlValue) -> str | None:
    match value:
        case None | dict():
            return None
        case list():
            return ", ".join(str(item) for item in value if isinstance(item, str | int | float))
        case _:
            return str(value)


def _clean_fact(name: str, value: str, workspace: Path | None) -> str | None:
    visible = "".join(_visible(character) for character in value)
    text = " ".join(visible.split()).strip("*_` ")
    if not text or _PLACEHOLDER.fullmatch(text):
        return None
    if name == "avatar":
        return _check_avatar(text, workspace)
    return text[: _LIMITS[name]].rstrip()


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cc", "Zl", "Zp"):
        return " "
    return "" if category in ("Cf", "Cs", "Co", "Cn") and character not in _JOINERS else character


def _check_avatar(text: str, workspace: Path | None) -> str | None:
    """Return the avatar if it is a web address, a data URL or a path in the workspace; otherwise None."""
    lowered = text.lower()
    if lowered.startswith("data:image/"):
        return text if len(text) <= _MAX_PICTURE_CHARS else None
    if len(text) > _LIMITS["avatar"]:
        return None
    if lowered.startswith(("http://", "https://")):
        return text
    if workspace is not None and Path(text).is_absolute() and Path(text).is_relative_to(workspace):
        text = str(Path(text).relative_to(workspace))
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text):
        return None
    try:
        return "/".join(split_path(text)) or None
    except StorageError:
        return None
