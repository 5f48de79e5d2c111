"""Installing plugins into the home: each gets a folder with an environment of its own.

A source is read before any of its code runs, so that the owner can consent to what the plugin registers and asks for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from retinue.core.errors import RetinueError, UsageError
from retinue.plugins.builtin import BUILT_IN_NAMES
from retinue.plugins.bundles import read_bundle
from retinue.plugins.discovery import INSTALL_RECORD, InstallRecord
from retinue.plugins.manifest import PluginError, PluginManifest, find_manifest, read_manifest

PIP_SECONDS = 900.0
GIT_SECONDS = 300.0
MAX_UNPACKED_BYTES = 500_000_000
_MANIFEST_DEPTH = 3
_SKIPPED = shutil.ignore_patterns(".git", "__pycache__", ".venv", "node_modules", "*.pyc")
_GIT = re.compile(r"(?:git\+)?(?:https|ssh|git|file)://.+|git@[^:]+:.+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^\]]*\])?(?:\s*[=<>!~].*)?")


class InstallFailed(RetinueError):
    """A plugin could not be installed."""


class PluginSourceFiles(Struct, frozen=True):
    """A source of a plugin on this machine, read but not executed."""

    requested: str
    """What the owner named; `update` uses it again."""
    manifest: PluginManifest
    path: Path
    """The folder with the manifest, or a wheel."""
    requires: tuple[str, ...] = ()
    """The packages that it needs."""


def installed_folder(home_plugins: Path, name: str) -> Path | None:
    """Return the folder of a plugin that `install` created; None if there is none."""
    folder = home_plugins / name
    return folder if (folder / INSTALL_RECORD).is_file() else None


def read_record(folder: Path) -> InstallRecord:
    """Return how a plugin was installed."""
    try:
        return msgspec.json.decode((folder / INSTALL_RECORD).read_bytes(), type=InstallRecord)
    except (OSError, msgspec.MsgspecError) as error:
        raise InstallFailed(f"{folder / INSTALL_RECORD} cannot be read: {error}. Remove the folder.") from error


@contextmanager
def open_source(requested: str) -> Iterator[PluginSourceFiles]:
    """Fetch a plugin and read its manifest: a folder, a wheel, a git URL, or a name of the package index."""
    with tempfile.TemporaryDirectory(prefix="retinue-plugin-") as scratch:
        place = Path(scratch)
        path = Path(requested).expanduser()
        if path.is_dir():
            yield _read_folder(str(path.resolve()), path.resolve())
        elif path.suffix == ".whl" and path.is_file():
            yield _read_wheel(str(path.resolve()), path.resolve(), place)
        elif _GIT.fullmatch(requested):
            yield _read_folder(requested, _clone(requested, place / "clone"))
        elif _NAME.fullmatch(requested) and not path.exists() and "/" not in requested:
            yield _read_wheel(requested, _download(requested, place / "wheels"), place)
        else:
            raise UsageError(
                f"'{requested}' is not a plugin: name a folder, a wheel (.whl), a git URL, or a package of the index."
            )


def install(
    source: PluginSourceFiles, home_plugins: Path, *, replace: bool = False, progress: Callable[[str], None]
) -> Path:
    """Install a source into the folder of plugins; return its new folder. Nothing is changed if that fails."""
    name = source.manifest.id
    if name in BUILT_IN_NAMES:
        raise UsageError(f"'{name}' is the name of a built-in plugin. The plugin must have another one.")
    target = home_plugins / name
    if target.exists() and not replace:
        raise UsageError(f"{target} exists. `retinue plugins update {name}` or `retinue plugins remove {name}` first.")
    home_plugins.mkdir(mode=0o700, parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=home_plugins))
    try:
        progress(f"Installing {name} …")
        library = _install_wheel(source, staging) if source.path.is_file() else _copy_files(source, staging)
        record = InstallRecord(source.requested, source.manifest.version, *_locate_installed(source, library, staging))
        (staging / INSTALL_RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
        _swap(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return target


def remove(folder: Path) -> None:
    """Remove an installed plugin."""
    hidden = folder.with_name(f".removed-{folder.name}-{os.getpid()}")
    folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _swap(staging: Path, target: Path) -> None:
    before = target.with_name(f".before-{target.name}-{os.getpid()}")
    if target.exists():
        target.rename(before)
    try:
        staging.rename(target)
    except OSError:
        if before.exists():
            before.rename(target)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _read_folder(requested: str, folder: Path) -> PluginSourceFiles:
    if find_manifest(folder) is None and (bundle := read_bundle(folder)) is not None:
        return PluginSourceFiles(requested, bundle, folder)
    manifest = _find_manifest_below(folder)
    if manifest is None:
        raise PluginError(f"{folder} has no manifest; add retinue.plugin.json (`retinue plugins new` writes one)")
    return PluginSourceFiles(requested, read_manifest(manifest), manifest.parent, _declared_requirements(folder))


def _read_wheel(requested: str, wheel: Path, scratch: Path) -> PluginSourceFiles:
    unpacked = scratch / "unpacked"
    try:
        with zipfile.ZipFile(wheel) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_UNPACKED_BYTES:
                raise InstallFailed(f"{wheel.name} is larger than {MAX_UNPACKED_BYTES:,} bytes unpacked.")
            archive.extractall(unpacked)  # zipfile removes `..` and leading slashes from names
    except (OSError, zipfile.BadZipFile) as error:
        raise InstallFailed(f"{wheel.name} is not a wheel: {error}.") from error
    manifest = _find_manifest_below(unpacked)
    if manifest is None:
        raise PluginError(f"{wheel.name} has no manifest (retinue.plugin.json), so it is not a plugin of Retinue")
    requires: list[str] = []
    version = ""
    for metadata in unpacked.glob("*.dist-info/METADATA"):
        headers = HeaderParser().parsestr(metadata.read_text("utf-8", "replace"))
        requires += [each for each in headers.get_all("Requires-Dist", []) if "extra ==" not in each]
        version = headers.get("Version", "")
    described = read_manifest(manifest)
    described = msgspec.structs.replace(described, version=described.version or version)
    return PluginSourceFiles(requested, described, wheel, tuple(requires))


def _declared_requirements(folder: Path) -> tuple[str, ...]:
    try:
        import tomllib

        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8")).get("project", {})
    except (OSError, ValueError):
        return ()
    found = project.get("dependencies", [])
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _find_manifest_below(folder: Path) -> Path | None:
    """Return the manifest of a source: at its root, or in a package below it."""
    level = [folder]
    for _ in range(_MANIFEST_DEPTH):
        for each in level:
            if found := find_manifest(each):
                return found
        level = [
            child
            for each in level
            for child in sorted(each.iterdir())
            if child.is_dir() and not child.name.startswith((".", "_")) and child.name not in ("tests", "node_modules")
        ]
    return None


def _locate_installed(source: PluginSourceFiles, library: Path, staging: Path) -> tuple[str, str]:
    """Return the paths of the installed manifest, empty for a bundle, and of the folder with the modules."""
    if source.manifest.bundle.format:
        return "", str(library.relative_to(staging))
    manifest = _find_same_manifest(source, library)
    return str(manifest.relative_to(staging)), str(_library_of(manifest, library).relative_to(staging))


def _find_same_manifest(source: PluginSourceFiles, library: Path) -> Path:
    """Return the installed manifest; it must be the one that the owner consented to."""
    found = _find_manifest_below(library)
    if found is None:
        raise InstallFailed(
            "The installed package does not contain retinue.plugin.json. Include it in the package's data files."
        )
    installed = msgspec.structs.replace(read_manifest(found), version="", path=None, skills=())
    if installed != msgspec.structs.replace(source.manifest, version="", path=None, skills=()):
        raise InstallFailed("The installed manifest differs from the one of the source; nothing was installed.")
    return found


def _library_of(manifest: Path, library: Path) -> Path:
    """Return the folder that the plugin's modules are imported from."""
    folder = manifest.parent
    return folder.parent if (folder / "__init__.py").is_file() else (folder if folder != library else library)


def _copy_files(source: PluginSourceFiles, staging: Path) -> Path:
    """Copy a plugin's package, or a folder of modules, and install what it needs. Nothing is built, so no code runs."""
    library = _make_environment(staging, *source.requires) if source.requires else staging / "lib"
    is_package = (source.path / "__init__.py").is_file()
    target = library / source.path.name if is_package else library
    shutil.copytree(source.path, target, ignore=_SKIPPED, symlinks=True, dirs_exist_ok=True)
    root = target.resolve()
    for path in target.rglob("*"):
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise InstallFailed(f"{path.relative_to(target)} is a link to a place outside the plugin.")
    return library


def _install_wheel(source: PluginSourceFiles, staging: Path) -> Path:
    return _make_environment(staging, str(source.path))


def _make_environment(staging: Path, *requirements: str) -> Path:
    """Install packages and what they need, except what Retinue has, into an environment; only wheels, so no code runs.

    Returns the folder with the packages.
    """
    environment = staging / "env"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(environment)
    library = next((environment / "lib").glob("python*/site-packages"))
    # pip sees Retinue's own packages through this file, so it installs no second copy of them.
    host = library / "retinue-host.pth"
    plugins = staging.parent.resolve()
    seen = (
        path for path in sys.path if path and Path(path).is_dir() and not Path(path).resolve().is_relative_to(plugins)
    )
    host.write_text("\n".join(seen))
    python = str(environment / "bin" / "python")
    _run_pip("--python", python, "install", "--only-binary", ":all:", "--no-warn-script-location", *requirements)
    host.unlink()
    return library


def _download(name: str, folder: Path) -> Path:
    """Download the wheel of a package; no code of it runs."""
    _run_pip("download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), name)
    found = next(folder.glob("*.whl"), None)
    if found is None:
        raise InstallFailed(f"The index has no wheel of {name}. Clone its repository and install the folder.")
    return found


def _run_pip(*arguments: str) -> None:
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    _run(argv, PIP_SECONDS, "pip", os.environ)


def _clone(url: str, folder: Path) -> Path:
    address, _, ref = url.removeprefix("git+").partition("#")
    if urlsplit(address).query:
        raise UsageError("A git URL must not have a query. Write https://host/repository#branch.")
    branch = ("--branch", ref) if ref else ()
    argv = [
        "git",
        "-c",
        "core.hooksPath=/dev/null",
        "clone",
        "--quiet",
        "--depth",
        "1",
        *branch,
        "--",
        address,
        str(folder),
    ]
    safe = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh:git:file"}
    _run(argv, GIT_SECONDS, "git", safe)
    return folder


def _run(argv: list[str], seconds: float, what: str, environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=seconds, env=dict(environment), stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise InstallFailed(f"The program {what} is not installed.") from None
    except subprocess.TimeoutExpired:
        raise InstallFailed(f"{what} did not end within {seconds:g} seconds.") from None
    if done.returncode:
        if "No module named pip" in done.stderr:
            raise InstallFailed(f"{sys.executable} has no pip. Run `{sys.executable} -m ensurepip` first.")
        lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("[notice]")]
        raise InstallFailed(f"{what} failed: " + "\n".join(lines[-5:]))
