"""Validates a configuration: unknown keys, invalid values, and keys that are not used yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from retinue.config.keypath import Step, format_key_path
from retinue.config.keys import Key, find_key, is_secret, shape_of, step_into, suggest_key
from retinue.config.schema import Config
from retinue.config.sections.tools import AllowRules
from retinue.config.sources import Located, Problem
from retinue.config.variables import REFUSED, refused_variables
from retinue.structs.decode import DecodeError, DecodeProblem, decode
from retinue.toolkit.settings import ToolsSettings
from retinue.tools.policy import GROUPS

_SHOWN_CHARS = 40


def validate(tree: Located) -> tuple[Config | None, list[Problem]]:
    """Return the configuration of a tree, or None if it has errors."""
    problems = list(_unknown_keys(tree))
    try:
        config = decode(Config, tree.plain)
    except DecodeError as error:
        problems.extend(_wrong_values(tree, error.faults))
        return None, problems
    problems.extend(_unknown_groups(tree))
    problems.extend(_refused_variables(tree))
    return (None if any(problem.severity == "error" for problem in problems) else config), problems


def pending_keys(tree: Located) -> tuple[str, ...]:
    """Return the keys of a tree that are accepted but not used yet."""
    return tuple(format_key_path(path) for path, key, _ in _known_keys(tree) if key.pending and key.shape.is_leaf)


def _known_keys(
    node: Located, key: Key | None = None, path: tuple[Step, ...] = ()
) -> Iterator[tuple[tuple[Step, ...], Key, Located]]:
    """Yield every known key of the tree, down to those with values."""
    key = key or Key("", shape_of(Config))
    if path:
        yield path, key, node
    if key.shape.is_leaf:
        return
    for step, below in _children(node):
        found = step_into(key.shape, step, "")
        if found is not None:
            yield from _known_keys(below, found, (*path, step))


def _unknown_keys(tree: Located) -> Iterator[Problem]:
    for path, key, node in ((), Key("", shape_of(Config)), tree), *_known_keys(tree):
        if key.shape.is_leaf:
            continue
        for step, below in _children(node):
            if isinstance(step, str) and step_into(key.shape, step, "") is None:
                yield _unknown(below, (*path, step))


def _unknown_groups(tree: Located) -> Iterator[Problem]:
    """Return problems for unknown tool groups: a misspelled one in `deny` would silently deny nothing."""
    for path, key, node in _known_keys(tree):
        if key.section is None or not issubclass(key.section, (AllowRules, ToolsSettings)) or not key.shape.is_leaf:
            continue
        for index, item in _children(node):
            name = str(item.value).strip().lower()
            if name.startswith("group:") and name not in GROUPS:
                names = [group.removeprefix("group:") for group in GROUPS]
                near = get_close_matches(name.removeprefix("group:"), names, n=1)
                hint = f"Did you mean group:{near[0]}?" if near else f"Groups: {', '.join(GROUPS)}."
                message = f"There is no group of tools '{item.value}', so this has no effect. {hint}"
                yield Problem("warning", format_key_path((*path, index)), item.file, item.line, message)


def _refused_variables(tree: Located) -> Iterator[Problem]:
    for path, name in refused_variables(tree.plain):
        node: Located | None = tree
        for step in path:
            node = node.child(step) if node else None
        if node is not None:
            yield Problem("warning", format_key_path(path), node.file, node.line, REFUSED.format(name=name))


def _unknown(node: Located, path: tuple[Step, ...]) -> Problem:
    spelled = format_key_path(path)
    match path:
        case ("agents", "list", int(), *rest) if find_key(Config, ("agents", "defaults", *rest)):
            shared = format_key_path(("agents", "defaults", *rest))
            message = f"This key cannot be set for one agent; it applies to all agents. Move it to {shared}."
            return Problem("error", spelled, node.file, node.line, message)
    near = suggest_key(Config, path)
    hint = f" Did you mean {near}?" if near else ""
    return Problem("warning", spelled, node.file, node.line, f"This key is not known and has no effect.{hint}")


def _children(node: Located) -> list[tuple[Step, Located]]:
    if isinstance(node.value, dict):
        return list(node.value.items())
    return list(enumerate(node.value)) if isinstance(node.value, list) else []


def _wrong_values(tree: Located, faults: Sequence[DecodeProblem]) -> Iterator[Problem]:
    for fault in faults:
        path, node = _place(tree, fault.path)
        yield Problem("error", format_key_path(path), node.file, node.line, _explain(path, node, fault))


def _place(tree: Located, location: Sequence[Step]) -> tuple[tuple[Step, ...], Located]:
    """Return the part of a path that exists in the tree; the rest is a missing key, or a key that a text implies."""
    path: tuple[Step, ...] = ()
    node = tree
    for step in location:
        below = node.child(step)
        if below is None:
            break
        path, node = (*path, step), below
    return path, node


def _explain(path: tuple[Step, ...], node: Located, fault: DecodeProblem) -> str:
    match fault.kind:
        case "missing":
            return f"'{fault.path[-1]}' is missing here. Add it."
        case "value":
            return f"{fault.message}."
        case "type" | "unknown":
            text = json.dumps(node.plain, ensure_ascii=False, default=str)
            shown = text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
            return f"expected {fault.expected}, got {'something else' if is_secret(path) else shown}."
