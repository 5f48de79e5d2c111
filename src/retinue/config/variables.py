"""Environment variables in a configuration: those that it references, and those that it sets.

`${NAME}` is replaced by the value of a variable; `$${NAME}` is a literal `${NAME}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from retinue.config.keypath import Step, format_key_path
from retinue.config.sources import Located, Problem
from retinue.toolkit.processes.environment import is_settable_variable

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


REFUSED = (
    "The variable {name} changes what programs load, run or connect to, so it is not set from here. "
    "Set it where Retinue is started."
)


def declared_variables(config: object) -> dict[str, str]:
    """Return the variables of a configuration: those in `env.vars`, and texts in `env` itself.

    Others may have written parts of the file, so variables that decide what programs load are omitted.
    """
    return {name: value for _, name, value in _declared(config) if is_settable_variable(name)}


def refused_variables(config: object) -> list[tuple[tuple[str, ...], str]]:
    """Return the paths and names of the omitted variables."""
    return [(path, name) for path, name, _ in _declared(config) if not is_settable_variable(name)]


def _declared(config: object) -> Iterator[tuple[tuple[str, ...], str, str]]:
    section = config.get("env") if isinstance(config, Mapping) else None
    if not isinstance(section, Mapping):
        return
    below = section.get("vars")
    for path, names in (("env",), section), (("env", "vars"), below if isinstance(below, Mapping) else {}):
        yield from (((*path, name), name, value) for name, value in names.items() if isinstance(value, str))
