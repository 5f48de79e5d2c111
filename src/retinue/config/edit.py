"""Changing the configuration: the file that holds the key is rewritten around it, if the result is valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from retinue.config.json5 import Json5Error, parse
from retinue.config.json5_edit import set_in, unset_in
from retinue.config.json5_tree import Json
from retinue.config.keypath import Segment, Step, locate, look_up, parse_path, spell_path
from retinue.config.keys import require_key
from retinue.config.load import Checked, check_text
from retinue.config.problems import Problem
from retinue.config.schema import Config
from retinue.config.secrecy import redact
from retinue.config.sources import Located, SourceError, Sources, assemble, read_main_file
from retinue.core.clock import SystemClock
from retinue.core.errors import ConfigError, StorageError, UsageError
from retinue.security.redaction import redact_everything
from retinue.storage.auditlog import AuditLog
from retinue.storage.files import write_atomic
from retinue.storage.home import Home

CLI = "command line"
CONFIG_CHANGE = "config_change"
"""The kind of audit record for a changed key."""


@dataclass(frozen=True, slots=True)
class Edited:
    """What an edit did: the file it changed, or nothing, and what to know about the result."""

    file: Path
    path: str
    changed: bool
    problems: tuple[Problem, ...]


def set_value(home: Home, path: str, value_text: str, environment: Mapping[str, str], *, who: str = CLI) -> Edited:
    """Set a key to a JSON5 value; what is no JSON5 is taken as text. A change that would not be valid is refused.

    Every change goes into the audit log, as done by `who`; one that cannot be written down there is taken back.
    """
    segments = parse_path(path)
    value = read_value(segments, value_text)
    edit = _Edit(segments, who, after=value)
    return _edit(home, edit, environment, lambda text, local: set_in(text, local, value))


def unset_value(home: Home, path: str, environment: Mapping[str, str], *, who: str = CLI) -> Edited:
    """Take a key out, so that its default holds again; an unknown key can be taken out too."""
    return _edit(home, _Edit(parse_path(path), who), environment, unset_in, must_exist=True)


def read_value(path: Sequence[Segment], text: str) -> Json:
    """The value that somebody typed for a key."""
    key = require_key(Config, path)
    try:
        value = parse(text).value
    except Json5Error as error:
        if text.lstrip()[:1] in ("{", "[", '"', "'"):
            raise UsageError(f"The value is not JSON5: {error}") from error
        return text
    # `config set agents.defaults.timeFormat 24` means the text: nobody wants to quote twice.
    return text if key.shape.takes_text and isinstance(value, (int, float)) else value


@dataclass(frozen=True, slots=True)
class _Edit:
    """What is to change, who wants it, and what the key shall be; None where it goes."""

    path: Sequence[Segment]
    who: str
    after: Json = None


def _edit(
    home: Home,
    edit: _Edit,
    environment: Mapping[str, str],
    change: Callable[[str, Sequence[Step]], str],
    *,
    must_exist: bool = False,
) -> Edited:
    try:
        text = read_main_file(home.config_file)
        sources = assemble(home, home.config_file, text or "")
    except SourceError as error:
        raise ConfigError(f"The configuration cannot be edited before it is repaired: {error}") from error
    steps = locate(edit.path, sources.tree.plain)
    file, local, exists = _home_of(sources.tree, steps)
    if must_exist and not exists:
        raise UsageError(f"{spell_path(steps)} is not set in {home.config_file}, so its default holds already.")
    old = sources.texts[file]
    new = change(old, local)
    if new == old:
        return Edited(file, spell_path(steps), changed=False, problems=())
    checked = _check_edit(home, environment, sources, {file: new})
    if (read_main_file(file) or "") != old:
        raise ConfigError(f"{file} was changed by somebody else meanwhile. Nothing was written; try again.")
    write_atomic(file, new.encode("utf-8"))
    try:
        _record(home, file, steps, look_up(steps, sources.tree.plain)[1], edit)
    except StorageError:
        write_atomic(file, old.encode("utf-8"))
        raise
    return Edited(file, spell_path(steps), changed=True, problems=checked.problems)


def _record(home: Home, file: Path, steps: Sequence[Step], before: object, edit: _Edit) -> None:
    """Write down what was changed, without secrets."""
    details = {
        "key": spell_path(steps),
        "file": str(file),
        "before": redact(before, steps),
        "after": redact(edit.after, steps),
    }
    AuditLog(home.audit_log, SystemClock(), redact_everything).record(CONFIG_CHANGE, edit.who, details)


def _home_of(tree: Located, path: Sequence[Step]) -> tuple[Path, tuple[Step, ...], bool]:
    """The file that holds a key, the key's path inside it, and whether it is there.

    A new key goes where its parent is.
    """
    node = tree
    for depth, step in enumerate(path):
        below = node.child(step)
        if below is None:
            return node.file, (*node.local, *path[depth:]), False
        node = below
    return node.file, node.local, True


def _check_edit(home: Home, environment: Mapping[str, str], before: Sources, texts: Mapping[Path, str]) -> Checked:
    main = home.config_file
    old = check_text(home, main, before.texts[main], environment)
    new = check_text(home, main, texts.get(main, before.texts[main]), environment, texts)
    known = {(problem.path, problem.message) for problem in old.problems}
    added = [each for each in new.problems if each.severity == "error" and (each.path, each.message) not in known]
    if added:
        raise ConfigError(f"Nothing was changed, because the result would not be valid: {added[0]}")
    return new
