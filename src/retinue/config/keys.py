"""The keys of the configuration: path, type and documentation of each, and which of them hold secrets."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from textwrap import dedent
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec

from retinue.config.keypath import Segment, format_key_path
from retinue.core.errors import UsageError
from retinue.security.redaction import HIDDEN
from retinue.settings import KeyInfo, Reload, Settings
from retinue.structs.declare import Field, arms_of, default_of, describe, fields_of, to_plain


@cache
def documentation_of(section: type[Settings]) -> Mapping[str, str]:
    """Return the documentation of a section's keys by attribute: the docstrings under them, read from the source."""
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, Settings) and base is not Settings:
            found.update(_field_docstrings(base))
    return found


def _field_docstrings(section: type[Settings]) -> Iterator[tuple[str, str]]:
    declaration = ast.parse(dedent(inspect.getsource(section))).body[0]
    assert isinstance(declaration, ast.ClassDef)
    for statement, following in zip(declaration.body, declaration.body[1:], strict=False):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
            case _:
                pass


class Shape(msgspec.Struct, frozen=True):
    """What a value can contain: the keys of an object, the items of a list, the values of a map."""

    sections: tuple[type[Settings], ...]
    items: Any
    values: Any
    is_free: bool
    takes_text: bool
    words: str
    allowed: tuple[Any, ...]

    @property
    def is_leaf(self) -> bool:
        """Whether the value contains no declared keys."""
        below = (hint for hint in (self.items, self.values) if hint is not None)
        return not self.sections and all(shape_of(hint).is_leaf for hint in below)


def shape_of(hint: Any, limits: Mapping[str, Any] | None = None) -> Shape:
    """Return the shape for a type and the limits of its key."""
    arms = [arm for arm in arms_of(hint) if arm is not NoneType]
    lists = [get_args(arm)[0] for arm in arms if get_origin(arm) in (list, tuple, set)]
    maps = [get_args(arm)[1] for arm in arms if get_origin(arm) is dict]
    allowed = tuple(value for arm in arms if get_origin(arm) is Literal for value in get_args(arm))
    return Shape(
        sections=tuple(arm for arm in arms if isinstance(arm, type) and issubclass(arm, Settings)),
        items=lists[0] if lists else None,
        values=maps[0] if maps else None,
        is_free=any(arm is Any or arm is object for arm in arms),
        takes_text=any(arm is str or get_origin(arm) is Literal for arm in arms)
        and not any(arm in (bool, int, float) for arm in arms)
        and all(isinstance(value, str) for value in allowed),
        words=describe(hint, limits),
        allowed=allowed,
    )


MOVED = {
    "agents.entries": "agents.list",
    "memory.search": "agents.defaults.memorySearch",
    "agent": "agents.defaults",
    "routing.bindings": "bindings",
    "routing.queue": "messages.queue",
    "tools.bash": "tools.exec",
    "identity": "agents.list[].identity",
}
"""The current names of keys that other versions of OpenClaw use."""


UNSUPPORTED = {
    "agents.defaults.pdfModel": "the text of PDF files is read without a model",
    "agents.defaults.compaction.provider": "a context engine of a plugin can compact (plugins.slots.contextEngine)",
    "agents.defaults.compaction.truncateAfterCompaction": "a transcript is never cut",
    "agents.defaults.memorySearch.store.driver": "the index is always SQLite",
    "agents.defaults.memorySearch.store.fts": "the index chooses the words of each language itself",
    "agents.defaults.memorySearch.store.vector.extensionPath": "vectors are searched without an extension",
    "agents.defaults.sandbox.browser": "agents have no browser tool yet",
    "commands.debug": "use /config",
    "commands.mcp": "MCP servers cannot be changed from a chat",
    "gateway.auth.allowTailscale": "use gateway.auth.trustedProxy",
    "gateway.controlUi.root": "the page is part of the package",
    "gateway.tailscale": "publish the port with `tailscale serve`",
    "mcp.servers.<name>.codex": "Codex reads its own configuration",
    "mcp.servers.<name>.oauth.authProfileId": "the account of a server is stored by the server's name",
    "mcp.servers.<name>.oauth.identity": "all sessions use a server with the same account",
    "meta": "",
    "plugins.entries.<name>.hooks.allowConversationAccess": "every enabled plugin can read messages",
    "plugins.entries.<name>.subagent": "plugins cannot start sub-agents",
    "plugins.slots.browser": "agents have no browser tool yet",
    "session.store": "the index is always beside the transcripts",
    "skills.install": "`retinue skills info` shows how to install what is missing; nothing is installed",
    "tools.exec.host": "agents.defaults.sandbox decides where commands run",
    "tools.exec.node": "commands run only on this machine",
    "wizard": "",
}
"""Keys of OpenClaw that Retinue does not have, with the reason; empty for data that OpenClaw keeps in the file."""


def find_unsupported(path: Sequence[Segment]) -> str | None:
    """Return why a key of OpenClaw has no effect, empty if nothing is lost; None for any other key."""
    steps = [step for step in path if isinstance(step, str)]
    match path:
        case ("agents", "list", int(), *rest):
            steps = ["agents", "defaults", *(step for step in rest if isinstance(step, str))]
        case ("plugins" | "mcp" as section, "entries" | "servers" as named, str(), *rest):
            steps = [section, named, "<name>", *(step for step in rest if isinstance(step, str))]
    return UNSUPPORTED.get(".".join(steps))


class Key(msgspec.Struct, frozen=True):
    """One key; `field` is None for an entry of a map or list."""

    path: str
    shape: Shape
    section: type[Settings] | None = None
    field: Field | None = None

    @property
    def description(self) -> str:
        return documentation_of(self.section).get(self.field.attribute, "") if self.section and self.field else ""

    @property
    def is_required(self) -> bool:
        return self.field is not None and self.field.is_required

    @property
    def default(self) -> Any:
        """The default value, as it would be written in the file."""
        if self.section is None or self.field is None or self.field.is_required:
            return None
        return to_plain(default_of(self.section, self.field.attribute))

    @property
    def pending(self) -> str:
        """Why the key has no effect yet; empty if it has one."""
        return self.info.pending

    @property
    def reload(self) -> Reload:
        return self.info.reload

    @property
    def info(self) -> KeyInfo:
        info = self.field.info if self.field else None
        return info if isinstance(info, KeyInfo) else KeyInfo()


def keys_of(shape: Shape) -> dict[str, tuple[type[Settings], Field]]:
    """Return the keys of an object of this type, with the sections that declare them."""
    return {name: (section, field) for section in shape.sections for name, field in fields_of(section).items()}


def takes_any_key(shape: Shape) -> bool:
    """Return whether undeclared keys are accepted."""
    return shape.is_free or any(section.unknown_keys == "keep" for section in shape.sections)


def key_of(section: type[Settings], field: Field, path: str) -> Key:
    return Key(path, shape_of(field.type, field.info.limits), section, field)


def step_into(shape: Shape, segment: Segment, path: str) -> Key | None:
    """Return the key or entry at one step of a path; None if there is none."""
    if not isinstance(segment, str):
        return Key(path, shape_of(shape.items)) if shape.items is not None else None
    keys = keys_of(shape)
    if segment in keys:
        return key_of(*keys[segment], path)
    if shape.values is not None:
        return Key(path, shape_of(shape.values))
    return Key(path, shape_of(Any)) if takes_any_key(shape) else None


def find_key(root: type[Settings], path: Sequence[Segment]) -> Key | None:
    """Return the key at a path; None if the configuration has no such key."""
    found = Key("", shape_of(root))
    for index, segment in enumerate(path):
        below = step_into(found.shape, segment, format_key_path(path[: index + 1]))
        if below is None:
            return None
        found = below
    return found


def require_key(root: type[Settings], path: Sequence[Segment]) -> Key:
    """Return the key at a path; raise `UsageError` with the most similar one if there is none."""
    key = find_key(root, path)
    if key is None:
        near = suggest_key(root, path)
        hint = f"Did you mean {near}?" if near else "`retinue config schema` lists the keys."
        raise UsageError(f"There is no key {format_key_path(path)}. {hint}")
    return key


def every_key(root: type[Settings]) -> Iterator[Key]:
    """Yield all keys, sections before their keys; `[]` is an item of a list and `<name>` any key of a map."""
    yield from _below(shape_of(root), "")


def _below(shape: Shape, path: str) -> Iterator[Key]:
    for name, (section, field) in keys_of(shape).items():
        found = key_of(section, field, f"{path}.{name}" if path else name)
        yield found
        yield from _below(found.shape, found.path)
    if shape.items is not None:
        yield from _below(shape_of(shape.items), f"{path}[]")
    if shape.values is not None:
        yield from _below(shape_of(shape.values), f"{path}.<name>")


@cache
def _all_paths(root: type[Settings]) -> tuple[str, ...]:
    return tuple(key.path for key in every_key(root))


@cache
def _documented_keys(root: type[Settings]) -> tuple[tuple[str, str], ...]:
    return tuple((key.path, key.description) for key in every_key(root) if not key.pending)


def search_keys(root: type[Settings], query: str) -> list[tuple[str, str]]:
    """Return the keys whose name and documentation contain all words, with the documentation.

    Keys with all words in their names come first, short names before long ones.
    """
    words = query.lower().split()
    found = []
    for path, documentation in _documented_keys(root):
        name = path.lower()
        if all(word in name or word in documentation.lower() for word in words):
            found.append((not all(word in name for word in words), len(path), path, documentation))
    return [(path, documentation) for *_, path, documentation in sorted(found)]


def nearest_key(shape: Shape, name: str) -> str | None:
    """Return the key of an object that a misspelled name probably means."""
    keys = {known.lower(): known for known in keys_of(shape)}
    near = get_close_matches(name.replace("_", "").lower(), keys, n=1, cutoff=0.7)
    return keys[near[0]] if near else None


def suggest_key(root: type[Settings], path: Sequence[Segment]) -> str | None:
    """Return the known key that an unknown one probably means."""
    spelled = format_key_path(path)
    for old, new in MOVED.items():
        if spelled == old or spelled.startswith(f"{old}."):
            return new
    last = path[-1]
    if not isinstance(last, str):
        return None
    parent = find_key(root, path[:-1])
    sibling = nearest_key(parent.shape, last) if parent else None
    if sibling is not None:
        return format_key_path([*path[:-1], sibling])
    everywhere = _all_paths(root)
    same_name = [known for known in everywhere if known.rpartition(".")[2] == last]
    if same_name:
        fixed = [known for known in same_name if "[]" not in known and "<name>" not in known]
        return get_close_matches(spelled, fixed or same_name, n=1, cutoff=0.0)[0]
    anywhere = get_close_matches(spelled, everywhere, n=1, cutoff=0.75)
    return anywhere[0] if anywhere else None


_SECRET_NAME = re.compile(
    r"(?:api_?key|token|password|passphrase|secret|credential|private_?key|authorization|cookie)$", re.IGNORECASE
)
_MAPS_OF_SECRETS = ("env", "vars", "headers")


def is_secret(path: Sequence[Segment]) -> bool:
    """Return whether the value at a path is a secret."""
    names = [segment for segment in path if isinstance(segment, str)]
    if not names:
        return False
    is_named_so = bool(_SECRET_NAME.search(names[-1]))
    stands_in_map = len(names) > 1 and names[-2] in _MAPS_OF_SECRETS
    return is_named_so or (stands_in_map and names not in (["env", "vars"], ["env", "shellEnv"]))


def redact(value: Any, path: Sequence[Segment] = ()) -> Any:
    """Return a plain value with every secret replaced; references to secrets are kept."""
    if isinstance(value, dict):
        return {name: redact(below, (*path, name)) for name, below in value.items()}
    if isinstance(value, list):
        return [redact(below, path) for below in value]
    return HIDDEN if isinstance(value, str) and value and is_secret(path) else value
