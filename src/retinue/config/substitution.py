"""Substitutes environment variables in a configuration: `${NAME}`; `$${NAME}` is a literal `${NAME}`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from retinue.config.keypath import Step, format_key_path
from retinue.config.problems import Problem
from retinue.config.sources import Located

_VARIABLE = re.compile(r"\$(\$?)\{([A-Z_][A-Z0-9_]*)\}")


def substitute(tree: Located, environment: Mapping[str, str]) -> tuple[Located, list[Problem]]:
    """Return the tree with all variables substituted; a text with an unset variable is omitted."""
    problems: list[Problem] = []
    filled = _fill(tree, environment, (), problems)
    assert filled is not None
    return filled, problems


def _fill(
    node: Located, environment: Mapping[str, str], path: tuple[Step, ...], problems: list[Problem]
) -> Located | None:
    value = node.value
    if isinstance(value, dict):
        members = {name: _fill(below, environment, (*path, name), problems) for name, below in value.items()}
        return replace(node, value={name: below for name, below in members.items() if below is not None})
    if isinstance(value, list):
        items = [_fill(below, environment, (*path, index), problems) for index, below in enumerate(value)]
        return replace(node, value=[below for below in items if below is not None])
    if not isinstance(value, str) or "${" not in value:
        return node
    names = [name for escaped, name in _VARIABLE.findall(value) if not escaped]
    missing = [name for name in names if name not in environment]
    if missing:
        message = f"The environment variable {missing[0]} is not set, so the key is ignored. Set it or write the value."
        problems.append(Problem("warning", format_key_path(path), node.file, node.line, message))
        return None
    text = _VARIABLE.sub(lambda found: found[0][1:] if found[1] else environment[found[2]], value)
    return replace(node, value=text, variables=tuple(names))
