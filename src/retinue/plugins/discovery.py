"""Discovery of plugins: installed packages, and files and folders named in the configuration."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.core.errors import RetinueError
from retinue.plugins.hookspecs import NAME

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_REGISTER_FUNCTION = "retinue_register"


class PluginError(RetinueError):
    """A plugin cannot be used; the message completes a sentence that starts with its name."""


class PluginCandidate(Struct, frozen=True):
    """A plugin that was found. `load` imports it and returns the object with its hooks."""

    name: str
    origin: str
    load: Callable[[], object]


def find_plugins(paths: Iterable[Path]) -> Iterator[PluginCandidate]:
    """Yield all plugins: those of `paths` in order, then the installed ones by name.

    A path is a file, a package, or a folder of files and packages.
    """
    for path in paths:
        candidates = [path]
        if path.is_dir() and not _is_package(path):
            children = sorted(path.iterdir())
            candidates = [each for each in children if _is_package(each) or (each.suffix == ".py" and each.is_file())]
        for candidate in candidates:
            yield PluginCandidate(candidate.stem, str(candidate), partial(_load_at, candidate))
    for entry in _installed():
        origin = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
        yield PluginCandidate(entry.name, origin, entry.load)


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """Return the entry points of installed plugins; packages installed later need a new process."""
    if not any(map(_may_hold_plugins, sys.path)):
        return ()
    from importlib.metadata import entry_points

    return tuple(sorted(entry_points(group=NAME), key=lambda entry: entry.name))


def _may_hold_plugins(folder: str) -> bool:
    """Return whether a folder of installed packages declares an entry point of ours.

    `importlib.metadata` would answer that too, but importing it takes a tenth of a one-shot turn.
    """
    try:
        entries = [*os.scandir(folder or ".")]
    except FileNotFoundError:
        return False
    except OSError:
        return True  # an archive: only `importlib.metadata` can look into it
    packages = (entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))
    return any(_declares_plugins(Path(package, "entry_points.txt")) for package in packages)


def _declares_plugins(declaration: Path) -> bool:
    try:
        return f"[{NAME}]" in declaration.read_text("utf-8")
    except (OSError, ValueError):
        return False


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").is_file()


def _load_at(path: Path) -> object:
    """Import a file or package under its own name; in a package, `plugin.py` may contain `retinue_register`."""
    if not path.exists():
        raise PluginError(f"{path} does not exist; correct plugins.load.paths")
    module = _import_at(path)
    if not hasattr(module, _REGISTER_FUNCTION) and (path / "plugin.py").is_file():
        module = importlib.import_module(f"{module.__name__}.plugin")
    return module


def _import_at(path: Path) -> ModuleType:
    name, file = path.stem.replace("-", "_"), path / "__init__.py" if path.is_dir() else path
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) == str(file):
            return known
        raise PluginError(f"another module is already called '{name}'; rename {path}")
    spec = spec_from_file_location(name, file, submodule_search_locations=[str(path)] if path.is_dir() else None)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is not a Python file or package")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
