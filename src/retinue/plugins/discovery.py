"""Where plugins are: installed packages, and files and folders that the configuration names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from msgspec import Struct

from retinue.core.errors import RetinueError
from retinue.plugins.hookspecs import NAME

_REGISTERS = "retinue_register"


class PluginError(RetinueError):
    """A plugin cannot be used; the message ends a sentence that begins with its name."""


class Candidate(Struct, frozen=True):
    """A plugin that was found. `load` imports it and gives the object with its hooks."""

    name: str
    origin: str
    load: Callable[[], object]


def find_plugins(paths: Iterable[Path]) -> Iterator[Candidate]:
    """Every plugin there is: those of `paths` in their order, then the installed ones by name."""
    for path in paths:
        yield from _find_at(path)
    for entry in _installed():
        origin = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
        yield Candidate(entry.name, origin, entry.load)


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """The plugins that are installed; what comes later is seen by the next process, as all code is."""
    return tuple(sorted(entry_points(group=NAME), key=lambda entry: entry.name))


def _find_at(path: Path) -> Iterator[Candidate]:
    """The plugin in a file or package; of another folder, those in the files and packages in it."""
    if path.is_dir() and not _is_package(path):
        for child in sorted(path.iterdir()):
            if _is_package(child) or (child.suffix == ".py" and child.is_file()):
                yield _at(child)
        return
    yield _at(path)


def _at(path: Path) -> Candidate:
    return Candidate(path.stem, str(path), partial(_load_at, path))


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").is_file()


def _load_at(path: Path) -> object:
    """Import a file or package under its own name; of a package, `plugin.py` may be what registers."""
    if not path.exists():
        raise PluginError(f"there is nothing at {path}; correct plugins.load.paths")
    module = _import_at(path)
    if not hasattr(module, _REGISTERS) and (path / "plugin.py").is_file():
        module = importlib.import_module(f"{module.__name__}.plugin")
    return module


def _import_at(path: Path) -> ModuleType:
    name, file = path.stem.replace("-", "_"), path / "__init__.py" if path.is_dir() else path
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) == str(file):
            return known
        raise PluginError(f"another module is called '{name}' already; rename {path}")
    spec = spec_from_file_location(name, file, submodule_search_locations=[str(path)] if path.is_dir() else None)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is no Python file or package")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
