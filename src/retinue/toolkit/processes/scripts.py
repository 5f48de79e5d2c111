"""The files whose code a command runs: scripts, Makefiles and the like, what they include, and their hashes.

A permanent permission is bound to these hashes, so that it ends when one of the files changes. Files are found by their
names in the command and in the code itself; a name that is computed while the code runs is not seen.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Sequence

from retinue.storage.files.descriptors import read_up_to
from retinue.tools.shell.allowlist import Argv, ArgvPattern, ContentHashes
from retinue.tools.shell.code_execution_flags import find_scripts
from retinue.tools.shell.wrappers import innermost

MAX_FILES = 200
MAX_FILE_BYTES = 64_000_000
MAX_PARSED_BYTES = 1_000_000
UNKNOWN = "unknown"
"""Stands for the hash of code that cannot be bound to: too large, too many files, or an include that is computed."""

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CODE_SUFFIXES = frozenset(
    {".py", ".sh", ".bash", ".zsh", ".fish", ".pl", ".pm", ".rb", ".js", ".mjs", ".cjs", ".ts", ".mk", ".make", ".lua"}
    | {".php", ".r", ".tcl", ".awk", ".sed", ".jl", ".gradle", ".rake"}
)
_NAME = re.compile(rb"[A-Za-z0-9_@%+.,/-]+")
_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+([\w, \t]+)|import[ \t]+([\w., \t]+))", re.M)
_INCLUDE = re.compile(rb"^[ ]*[-s]?include[ \t]+(.+)$", re.M)


def hash_scripts(commands: Iterable[Argv], folder: int) -> dict[str, str]:
    """Return the files whose code these commands run with their hashes; `folder` is their open working folder."""
    hashed: dict[str, str] = {}
    waiting = [posixpath.normpath(name) for argv in commands for name in find_scripts(innermost(argv))]
    while waiting:
        name = waiting.pop()
        if name in hashed:
            continue
        if len(hashed) >= MAX_FILES:
            return {**hashed, name: UNKNOWN}
        found = _read(name, folder)
        if found is None:
            continue
        digest, text = found
        hashed[name] = UNKNOWN if _computes_include(name, text) else digest
        waiting += [path for path in _named_files(name, text) if path not in hashed and _is_code(path, folder)]
    return hashed


def bind_patterns(
    patterns: Sequence[ArgvPattern], segments: Sequence[Argv], folder: int
) -> tuple[ArgvPattern, ...] | None:
    """Bind exact patterns to the present content of the files they run; None if that is not possible."""
    hashes = {ArgvPattern.exactly(argv): hash_scripts((argv,), folder) for argv in segments}
    if any(UNKNOWN in hashes[pattern].values() for pattern in patterns):
        return None
    return tuple(pattern.bound_to(_sorted(hashes[pattern])) for pattern in patterns)


def find_changed(patterns: Sequence[ArgvPattern], segments: Sequence[Argv], folder: int) -> tuple[ArgvPattern, ...]:
    """Return the bound patterns that would allow a command, but whose files have changed since."""
    bound = [pattern for pattern in patterns if pattern.content is not None]
    changed = []
    for argv in segments if bound else ():
        matching = [pattern for pattern in bound if pattern.matches(innermost(argv)) or pattern.matches(argv)]
        present = _sorted(hash_scripts((argv,), folder)) if matching else ()
        changed += [pattern for pattern in matching if pattern.content != present]
    return tuple(changed)


def _sorted(hashes: dict[str, str]) -> ContentHashes:
    return tuple(sorted(hashes.items()))


def _read(name: str, folder: int) -> tuple[str, bytes] | None:
    """Return the hash of a regular file and the part of it that is searched for names; None if there is none."""
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        if found.st_size > MAX_FILE_BYTES:
            return UNKNOWN, b""
        content = read_up_to(descriptor, MAX_FILE_BYTES, found.st_size)
    except OSError:
        return UNKNOWN, b""
    finally:
        os.close(descriptor)
    text = b"" if b"\0" in content[:4096] else content[:MAX_PARSED_BYTES]
    return hashlib.sha256(content).hexdigest(), text


def _is_code(name: str, folder: int) -> bool:
    suffix = posixpath.splitext(name)[1].lower()
    try:
        mode = os.stat(name, dir_fd=folder).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) and (suffix in _CODE_SUFFIXES or bool(mode & 0o111 and not name.startswith("/usr/")))


def _named_files(script: str, text: bytes) -> Iterator[str]:
    """Yield the paths that code may refer to: relative to the working folder, and to the script itself."""
    here = posixpath.dirname(script)
    names = dict.fromkeys(found.decode() for found in _NAME.findall(text))
    if _is_makefile(script):
        names |= dict.fromkeys(name.decode() for words in _INCLUDE.findall(text) for name in _NAME.findall(words))
        yield from (posixpath.normpath(posixpath.join(here, name)) for name in names)
    for name in names:
        if "/" in name or "." in name.strip("."):
            yield posixpath.normpath(name)
            yield posixpath.normpath(posixpath.join(here, name))
    if not script.endswith(".py"):
        return
    for origin, members, modules in _IMPORT.findall(text):
        package = origin.decode().strip(".")
        dotted = [word.decode().strip() for word in (*members.split(b","), *modules.split(b","))]
        for module in (package, *(f"{package}.{name}" if package else name for name in dotted)):
            path = posixpath.join(here, module.split(" ")[0].replace(".", "/"))
            yield from (posixpath.normpath(f"{path}.py"), posixpath.normpath(f"{path}/__init__.py"))


def _is_makefile(name: str) -> bool:
    base = posixpath.basename(name)
    return base in ("Makefile", "makefile", "GNUmakefile") or base.endswith((".mk", ".make"))


def _computes_include(name: str, text: bytes) -> bool:
    return _is_makefile(name) and any(set(words) & set(b"$*?[`") for words in _INCLUDE.findall(text))
