"""Discovery of plugins: paths of the configuration, workspaces, the home, installed packages, and the built-in ones."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from retinue.plugins.bundles import LAYOUTS, find_bundle, read_bundle
from retinue.plugins.hookspecs import NAME
from retinue.plugins.manifest import PluginError, PluginManifest, find_manifest, read_manifest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_REGISTER_FUNCTION = "retinue_register"
INSTALL_RECORD = "install.json"


class PluginSource(StrEnum):
    """Where a plugin was found; of two plugins with one name, the one with the earlier source is used."""

    CONFIG = "config"
    WORKSPACE = "workspace"
    HOME = "home"
    INSTALLED = "installed"
    BUILT_IN = "built-in"


class PluginCandidate(Struct, frozen=True):
    """A plugin that was found; `problem` says why it cannot be used.

    `load` imports it and returns the object with its hooks. It is None if the manifest declares everything.
    """

    manifest: PluginManifest
    source: PluginSource
    origin: str
    load: Callable[[], object] | None = None
    folder: Path | None = None
    """The folder that its modules must be in; None for installed packages."""
    problem: str = ""

    @property
    def name(self) -> str:
        return self.manifest.id


class PluginPlaces(Struct, frozen=True):
    """The folders and files in which plugins are looked for."""

    configured: tuple[Path, ...] = ()
    workspaces: tuple[Path, ...] = ()
    home: Path | None = None


class InstallRecord(Struct, frozen=True, rename="camel"):
    """How a plugin was installed into the home; stored next to it."""

    requested: str
    version: str
    manifest: str
    """The path of the manifest in the plugin's folder; empty for a bundle."""
    library: str = "lib"
    """The folder with its packages."""


def find_plugins(places: PluginPlaces) -> Iterator[PluginCandidate]:
    """Yield all plugins, those with precedence first: configured paths, workspaces, the home, installed packages.

    A configured path is a file, a package, or a folder of files and packages.
    """
    for path in places.configured:
        for candidate in _expand(path):
            yield _find_at(candidate, PluginSource.CONFIG)
    for workspace in places.workspaces:
        yield from (_find_at(path, PluginSource.WORKSPACE) for path in _children(workspace))
    if places.home is not None:
        yield from (_find_at(path, PluginSource.HOME) for path in _children(places.home))
    yield from map(_describe_installed, _installed())


def _expand(path: Path) -> list[Path]:
    if not path.is_dir() or _is_package(path) or find_manifest(path) or find_bundle(path):
        return [path]
    children = sorted(path.iterdir())
    return [
        each
        for each in children
        if _is_package(each) or find_manifest(each) or _has_bundle(each) or (each.suffix == ".py" and each.is_file())
    ]


def _has_bundle(folder: Path) -> bool:
    return folder.is_dir() and any((folder / path).is_file() for path in LAYOUTS.values())


def _children(folder: Path) -> list[Path]:
    """Return the folders of plugins in a folder that belongs to Retinue; hidden ones are not plugins."""
    try:
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []
    return [Path(entry.path) for entry in found if entry.is_dir() and not entry.name.startswith(".")]


def _find_at(path: Path, source: PluginSource) -> PluginCandidate:
    """Describe the plugin at a path from its manifest, or from its name if it has none."""
    derived = PluginManifest(path.stem.lower())
    try:
        folder, manifest = _locate_manifest(path)
        if manifest is not None:
            described = read_manifest(manifest)
            base = folder.parent if _is_package(folder) else folder
            load = partial(_load_entry, base, described.entry) if described.entry else None
            return PluginCandidate(described, source, str(path), load, base)
        if path.is_dir() and not _is_package(path) and (bundle := read_bundle(folder, path.name)) is not None:
            return PluginCandidate(bundle, source, str(path))
        if source is not PluginSource.CONFIG:
            raise PluginError("it has no manifest; add retinue.plugin.json")
    except PluginError as error:
        return PluginCandidate(derived, source, str(path), problem=str(error))
    return PluginCandidate(derived, source, str(path), partial(_load_at, path))


def _locate_manifest(path: Path) -> tuple[Path, Path | None]:
    """Return the folder that the modules of a plugin are in, and its manifest."""
    if not path.is_dir():
        return path.parent, None
    record = path / INSTALL_RECORD
    if not record.is_file():
        return path, find_manifest(path)
    try:
        installed = msgspec.json.decode(record.read_bytes(), type=InstallRecord)
    except (OSError, msgspec.MsgspecError) as error:
        raise PluginError(f"its record {record} cannot be read: {error}; install it again") from None
    return path / installed.library, path / installed.manifest if installed.manifest else None


def _describe_installed(entry: EntryPoint) -> PluginCandidate:
    origin = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
    version = entry.dist.version if entry.dist is not None else ""
    derived = PluginManifest(entry.name, version)
    try:
        manifest = _find_packaged_manifest(entry.value)
        if manifest is None:
            return PluginCandidate(derived, PluginSource.INSTALLED, origin, entry.load)
        described = msgspec.structs.replace(read_manifest(manifest), id=entry.name)
    except PluginError as error:
        return PluginCandidate(derived, PluginSource.INSTALLED, origin, problem=str(error))
    described = msgspec.structs.replace(described, version=described.version or version)
    has_targets = all(each.target for _, _, each in described.declared)
    load = None if has_targets and not described.entry else entry.load
    return PluginCandidate(described, PluginSource.INSTALLED, origin, load)


def _find_packaged_manifest(target: str) -> Path | None:
    """Return the manifest in the package of an entry point, without importing the package."""
    package = target.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = spec.submodule_search_locations if spec is not None else None
    return find_manifest(Path(next(iter(places)))) if places else None


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


def make_importable(folder: Path, targets: Iterable[str]) -> None:
    """Let the modules in a plugin's folder be imported; raise `PluginError` if another module has such a name.

    The folder comes last in the search path, so that a plugin cannot replace modules of others.
    """
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    for package in sorted({target.partition(":")[0].partition(".")[0] for target in targets}):
        # To look for it in all folders would take longer than everything else; a name that is taken there is found
        # when the target is missing in that module.
        known = sys.modules.get(package)
        origin = getattr(known.__spec__, "origin", None) if known is not None else None
        if package in sys.stdlib_module_names or (known is not None and not str(origin).startswith(f"{folder}/")):
            raise PluginError(f"another module is already called '{package}'; rename it in {folder}")
        place = f"{folder}/{package}"
        if not (os.path.isdir(place) or os.path.isfile(f"{place}.py")):  # noqa: PTH112, PTH113 - at every start
            raise PluginError(f"there is no module '{package}' in {folder}")


def _load_entry(folder: Path, entry: str) -> object:
    module, _, attribute = entry.partition(":")
    make_importable(folder, [module])
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


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
