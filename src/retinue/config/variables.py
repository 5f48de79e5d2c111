"""Environment variables that a configuration sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from retinue.toolkit.processes.environment import is_settable_variable

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
