"""Editing the configuration: changes keys in the files that contain them, if the result is valid.

`AGENT_EDITABLE_KEYS` lists the keys that an agent may change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from retinue.config.json5 import Json5Error, parse
from retinue.config.json5_edit import set_in, unset_in
from retinue.config.json5_tree import Json
from retinue.config.keypath import Segment, Step, format_key_path, locate, look_up, parse_path
from retinue.config.keys import redact, require_key
from retinue.config.load import Checked, check_text
from retinue.config.schema import Config
from retinue.config.sources import Located, Problem, SourceError, Sources, assemble, read_main_file
from retinue.core.clock import SystemClock
from retinue.core.errors import ConfigError, StorageError, UsageError
from retinue.security.redaction import HIDDEN, redact_everything, texts_in_data
from retinue.storage.auditlog import CLI, AuditLog
from retinue.storage.files import write_atomic
from retinue.storage.home_paths import HomePaths

CONFIG_CHANGE = "config_change"
"""The kind of audit record for a changed key."""


class Change(msgspec.Struct, frozen=True):
    """A key and its new JSON5 text; None removes the key, so that its default applies."""

    path: str
    text: str | None


class Edited(msgspec.Struct, frozen=True):
    """The result of an edit: the changed file, if any, and problems of the new configuration."""

    file: Path
    path: str
    changed: bool
    problems: tuple[Problem, ...]


def set_value(home: HomePaths, path: str, value_text: str, environment: Mapping[str, str], *, who: str = CLI) -> Edited:
    """Set a key to a JSON5 value, or to text that is not JSON5; an invalid change is refused."""
    return change_values(home, [Change(path, value_text)], environment, who=who)[0]


def unset_value(home: HomePaths, path: str, environment: Mapping[str, str], *, who: str = CLI) -> Edited:
    """Remove a key, so that its default applies; an unknown key can be removed too."""
    return change_values(home, [Change(path, None)], environment, who=who)[0]


def change_values(
    home: HomePaths, changes: Sequence[Change], environment: Mapping[str, str], *, who: str = CLI
) -> tuple[Edited, ...]:
    """Make several changes atomically: if one fails or the result is not valid, nothing is changed.

    Every change is recorded in the audit log with the actor `who`; a change that cannot be recorded is undone.
    """
    wanted = [_read_change(change) for change in changes]
    main = home.config_file
    try:
        sources = assemble(home, main, read_main_file(main) or "")
    except SourceError as error:
        raise ConfigError(f"The configuration cannot be edited before it is repaired: {error}") from error
    edits, texts = _edit_texts(home, sources, wanted)
    problems = _check_edit(home, environment, sources, texts).problems if texts else ()
    _write_and_record(home, {file: sources.texts[file] for file in texts}, texts, edits, who)
    return tuple(Edited(edit.file, format_key_path(edit.steps), edit.changed, problems) for edit in edits)


def read_value(path: Sequence[Segment], text: str) -> Json:
    """Parse the value that a person typed for a key."""
    key = require_key(Config, path)
    try:
        value = parse(text).value
    except Json5Error as error:
        if text.lstrip()[:1] in ("{", "[", '"', "'"):
            raise UsageError(f"The value is not JSON5: {error}") from error
        return text
    # `config set agents.defaults.timeFormat 24` means the text, which would otherwise need two levels of quotes.
    return text if key.shape.takes_text and isinstance(value, (int, float)) else value


class _Wanted(msgspec.Struct, frozen=True):
    """A key and its new value; with `goes` the key is removed."""

    path: Sequence[Segment]
    after: Json = None
    goes: bool = False


class _Edit(msgspec.Struct, frozen=True):
    """One applied change: its file, and the old and new value."""

    file: Path
    steps: Sequence[Step]
    before: object
    after: Json
    changed: bool


def _read_change(change: Change) -> _Wanted:
    path = parse_path(change.path)
    if change.text is None:
        return _Wanted(path, goes=True)
    value = read_value(path, change.text)
    if any(HIDDEN in text for text in texts_in_data(value)):
        raise UsageError(
            f"The new value of {change.path} contains {HIDDEN}, which is shown instead of a secret. "
            "Change its keys one by one, and leave the secret out."
        )
    return _Wanted(path, value)


def _edit_texts(home: HomePaths, sources: Sources, wanted: Sequence[_Wanted]) -> tuple[list[_Edit], dict[Path, str]]:
    """Apply the changes in order; return them and the new texts of the changed files."""
    main, tree = home.config_file, sources.tree
    edits: list[_Edit] = []
    texts: dict[Path, str] = {}
    for each in wanted:
        steps = locate(each.path, tree.plain)
        file, local, exists = _home_of(tree, steps)
        if each.goes and not exists:
            raise UsageError(f"{format_key_path(steps)} is not set in {main}, so its default applies already.")
        old = texts.get(file, sources.texts[file])
        new = unset_in(old, local) if each.goes else set_in(old, local, each.after)
        edits.append(_Edit(file, steps, look_up(steps, tree.plain)[1], each.after, new != old))
        if new != old:
            texts[file] = new
            tree = assemble(home, main, texts.get(main, sources.texts[main]), texts).tree
    return edits, texts


def _write_and_record(
    home: HomePaths, before: Mapping[Path, str], after: Mapping[Path, str], edits: Sequence[_Edit], who: str
) -> None:
    for file, old in before.items():
        if (read_main_file(file) or "") != old:
            raise ConfigError(f"{file} was changed by another program meanwhile. Nothing was written; try again.")
    try:
        for file, text in after.items():
            write_atomic(file, text.encode("utf-8"))
        audit = AuditLog(home.audit_log, SystemClock(), redact_everything)
        for edit in edits:
            if edit.changed:
                details = {
                    "key": format_key_path(edit.steps),
                    "file": str(edit.file),
                    "before": redact(edit.before, edit.steps),
                    "after": redact(edit.after, edit.steps),
                }
                audit.record(CONFIG_CHANGE, who, details)
    except StorageError:
        for file, text in before.items():
            write_atomic(file, text.encode("utf-8"))
        raise


def _home_of(tree: Located, path: Sequence[Step]) -> tuple[Path, tuple[Step, ...], bool]:
    """Return the file of a key, the key's path inside it, and whether the key exists.

    A new key is added to the file of its parent.
    """
    node = tree
    for depth, step in enumerate(path):
        below = node.child(step)
        if below is None:
            return node.file, (*node.local, *path[depth:]), False
        node = below
    return node.file, node.local, True


def _check_edit(home: HomePaths, environment: Mapping[str, str], before: Sources, texts: Mapping[Path, str]) -> Checked:
    main = home.config_file
    old = check_text(home, main, before.texts[main], environment)
    new = check_text(home, main, texts.get(main, before.texts[main]), environment, texts)
    known = {(problem.path, problem.message) for problem in old.problems}
    added = [each for each in new.problems if each.severity == "error" and (each.path, each.message) not in known]
    if added:
        raise ConfigError(f"Nothing was changed, because the result would not be valid: {added[0]}")
    return new


_OF_EVERY_AGENT = ("model", "heartbeat.every", "heartbeat.activeHours", "humanDelay")
_OF_DEFAULTS = (
    *("models", "thinkingDefault", "reasoningDefault", "verboseDefault", "userTimezone", "timeFormat"),
    *("blockStreamingDefault", "typingMode"),
)
_OF_ONE_AGENT = ("name", "identity", "groupChat")

AGENT_EDITABLE_KEYS: tuple[str, ...] = (
    *(f"agents.defaults.{name}" for name in (*_OF_EVERY_AGENT, *_OF_DEFAULTS)),
    *(f"agents.list[0].{name}" for name in (*_OF_EVERY_AGENT, *_OF_ONE_AGENT)),
    "messages",
    "session.reset",
    "session.resetByType",
    "session.resetByChannel",
    "session.idleMinutes",
    "session.maintenance",
    "logging.level",
    "logging.consoleLevel",
    "logging.consoleStyle",
)
"""Keys that an agent may edit, including everything below them; `[0]` means any item.

This is an allowlist, because a denylist would miss new keys. It contains neither permissions, sandboxes, credentials,
endpoints, plugins, hooks, routing and access to the gateway, nor sections that contain them.
"""

_EDITABLE_PATHS = tuple(parse_path(key) for key in AGENT_EDITABLE_KEYS)


def check_agent_change(key: str, value: Any) -> None:
    """Raise `UsageError` if an agent may not set a key to this value."""
    path = parse_path(key)
    require_key(Config, path)
    if not any(_is_within(path, editable) for editable in _EDITABLE_PATHS):
        raise UsageError(f"Only the owner can change '{key}', with `retinue config set {key} …`.")
    if any(text.lstrip().startswith("$") or "${" in text for text in texts_in_data(value)):
        raise UsageError(f"The value for '{key}' contains a reference with '$', which only the owner may write.")


def _is_within(path: Sequence[Segment], editable: Sequence[Segment]) -> bool:
    """Return whether a path is an editable key or below one; an index in the editable key means any item."""
    return len(path) >= len(editable) and all(
        not isinstance(step, str) if isinstance(wanted, int) else step == wanted
        for step, wanted in zip(path, editable, strict=False)
    )
