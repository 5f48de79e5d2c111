"""The bubblewrap backend: separate namespaces for every program, and a file system made of a few folders."""

from __future__ import annotations

import grp
import os
import pwd
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache, cached_property, lru_cache
from pathlib import Path, PurePosixPath

from msgspec import Struct

from retinue.sandbox.confinement import (
    ETC_FILES,
    ETC_FOLDERS,
    NO_FILTER,
    SYSTEM_FOLDERS,
    BackendKind,
    BackendProblem,
    CommandStart,
    Confinement,
    LaunchPlan,
    Network,
    SandboxLevel,
    SandboxParts,
)
from retinue.sandbox.guarded_files import find_guarded
from retinue.sandbox.launch import BLOCK, FIRST_FEED, INFO
from retinue.sandbox.seccomp import IN_NAMESPACES, build_filter, this_machine

PROGRAMS = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")
USER_HOME = "/home/agent"
PROXY_PORT = 3128

_OLDEST = (0, 5, 0)
_DISABLES_USER_NAMESPACES = (0, 8, 0)
_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"),
    *("--hostname", "sandbox", "--cap-drop", "ALL"),
)
_FILES = (
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"),
    ("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
)
_ETC_PATHS = tuple(f"/etc/{name}" for name in ETC_FILES)
_KERNEL_FILES = ("keys", "kallsyms", "timer_list", "slabinfo", "vmallocinfo", "sched_debug")
"""Files of `/proc` that describe the kernel and need no capability; some are readable only by root's programs."""
_TRIAL_SECONDS = 10
_NOBODY = 65534
_INSTALL = (
    "Install bubblewrap 0.5 or newer: `apt-get install bubblewrap`, `dnf install bubblewrap` or `apk add bubblewrap`."
)
_APPARMOR = (
    "AppArmor forbids user namespaces. Allow them for bwrap: `printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\n"
    "profile bwrap /usr/bin/bwrap flags=(unconfined) {\\n  userns,\\n}\\n' | sudo tee /etc/apparmor.d/bwrap && "
    "sudo systemctl reload apparmor`."
)
_SWITCHES = (
    ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", _APPARMOR),
    (
        "proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "The kernel forbids user namespaces. Allow them: `sudo sysctl -w kernel.unprivileged_userns_clone=1`.",
    ),
    (
        "proc/sys/user/max_user_namespaces",
        "0",
        "The kernel allows no user namespaces. Allow some: `sudo sysctl -w user.max_user_namespaces=15000`.",
    ),
)
"""Settings of the kernel that forbid namespaces: the file, its forbidding value, and how to change it."""
_CONTAINER_MARKS = (".dockerenv", "run/.containerenv")


class _Identity(Struct, frozen=True):
    """The user inside: the same as outside, so that programs show the same owners, but with a home of its own."""

    uid: int
    gid: int
    name: str
    group: str

    @classmethod
    @cache
    def of(cls, uid: int | None) -> _Identity:
        number = os.getuid() if uid is None else uid
        try:
            entry = pwd.getpwuid(number)
            gid = os.getgid() if uid is None else entry.pw_gid
            return cls(number, gid, entry.pw_name, grp.getgrgid(gid).gr_name)
        except KeyError:
            return cls(number, os.getgid() if uid is None else number, "agent", "agent")

    def files(self) -> dict[str, bytes]:
        """Return the user database."""
        users = f"{self.name}:x:{self.uid}:{self.gid}:{self.name}:{USER_HOME}:/bin/bash\n"
        groups = f"{self.group}:x:{self.gid}:\n"
        if self.uid != _NOBODY:
            users += f"nobody:x:{_NOBODY}:{_NOBODY}:nobody:/:/bin/false\n"
        if self.gid != _NOBODY:
            groups += f"nogroup:x:{_NOBODY}:\n"
        return {"/etc/passwd": users.encode(), "/etc/group": groups.encode()}


class Bubblewrap(Struct, frozen=True, dict=True):
    """The `bwrap` program of this machine, tested once. `uid` is the user that runs it, if it is another one."""

    name: str = "bubblewrap"
    level: SandboxLevel = SandboxLevel.NAMESPACES
    shows_parts: bool = True
    uid: int | None = None

    @cached_property
    def program(self) -> str | None:
        return next((path for path in PROGRAMS if os.access(path, os.X_OK)), None)

    @cached_property
    def version(self) -> tuple[int, ...]:
        """Return the version of the program; `(0,)` if it is unknown."""
        printed = _run(self.program or "", "--version")
        found = re.search(r"(\d+)\.(\d+)\.(\d+)", printed.stdout)
        return tuple(map(int, found.groups())) if found else (0,)

    @cached_property
    def _problem(self) -> BackendProblem | None:
        if self.program is None:
            return BackendProblem("the program `bwrap` is not installed", _INSTALL)
        if this_machine() is None:
            return NO_FILTER
        if self.version < _OLDEST:
            return BackendProblem(f"`bwrap` is older than {'.'.join(map(str, _OLDEST))}", _INSTALL)
        tried = _run(self.program, *self._namespaces(), *_system(), "--proc", "/proc", "--dev", "/dev", "/usr/bin/true")
        if tried.returncode == 0:
            return None
        errors = tried.stderr.strip().splitlines()
        why = f"`bwrap` does not work here: {errors[-1] if errors else f'it ended with {tried.returncode}'}"
        return BackendProblem(why, find_remedy(Path("/")))

    def find_problem(self, confinement: Confinement) -> BackendProblem | None:
        """Return why bubblewrap cannot be used, by running it; None if it works."""
        return self._problem

    def reaches_network(self, confinement: Confinement) -> bool:
        """Return whether commands have any network."""
        return confinement.network is not Network.OFF

    def wrap(self, confinement: Confinement, entry: CommandStart) -> LaunchPlan:
        """Return how to start a program in the sandbox."""
        machine = this_machine()
        assert machine is not None
        assert self.program is not None
        identity = _Identity.of(self.uid)
        files = _read_files(identity)
        guarded = find_guarded(str(confinement.visible)) if confinement.writable else []
        environment = make_environment(confinement, entry, identity.name)
        options = [
            *self._namespaces(),
            *("--new-session", "--die-with-parent", "--info-fd", str(INFO), "--block-fd", str(BLOCK)),
            *_system(),
            *_etc(files, first=FIRST_FEED + 2),
            *_kernel(confinement),
            *_mounts(confinement),
            *_protect(confinement.visible, guarded),
            *("--remount-ro", "/dev", "--remount-ro", "/"),
            *("--chdir", str(PurePosixPath(str(confinement.folder), entry.below)), "--clearenv"),
            *(word for name, value in environment.items() for word in ("--setenv", name, value)),
            *("--seccomp", str(FIRST_FEED + 1)),
        ]
        joined = b"".join(os.fsencode(option) + b"\0" for option in options)
        return LaunchPlan(
            kind=BackendKind.BUBBLEWRAP,
            program=self.program,
            options=("--args", str(FIRST_FEED)),
            feeds=(joined, build_filter(IN_NAMESPACES, machine), *files.values()),
            limits=confinement.limits,
            port=PROXY_PORT if confinement.network is Network.PROXY else None,
            stamp=str(confinement.own / "sandbox.json"),
            part=confinement.part,
            guarded=(str(confinement.visible), tuple(guarded)),
        )

    def _namespaces(self) -> tuple[str, ...]:
        forbids = self.version >= _DISABLES_USER_NAMESPACES
        identity = _Identity.of(self.uid)
        known = ("--uid", str(identity.uid), "--gid", str(identity.gid))
        return (*_NAMESPACES, *known, *(("--disable-userns",) if forbids else ()))


def find_remedy(root: Path) -> str:
    """Return what makes bubblewrap work on the system below `root`, by the settings that usually prevent it."""
    if any((root / mark).exists() for mark in _CONTAINER_MARKS):
        return (
            "The container forbids namespaces. Start it with `--security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined`."
        )
    for name, forbidding, remedy in _SWITCHES:
        try:
            if (root / name).read_text().strip() == forbidding:
                return remedy
        except OSError:
            continue
    return "Run `bwrap --unshare-all --ro-bind / / true` and allow what it reports."


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRIAL_SECONDS,
            env={},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(argv, 126, "", str(error))


@cache
def _system() -> tuple[str, ...]:
    """Return the options for programs and libraries, read-only."""
    options = ["--ro-bind", "/usr", "/usr"]
    for folder in SYSTEM_FOLDERS:
        path = Path(folder)
        if path.is_symlink():
            options += ("--symlink", str(path.readlink()), folder)
        elif path.is_dir():
            options += ("--ro-bind", folder, folder)
    return tuple(options)


def _protect(folder: Path, guarded: Iterable[str]) -> Iterator[str]:
    """Yield the options that show guarded paths read-only. A missing path or a link cannot be mounted."""
    for path in (folder / name for name in guarded):
        if path.exists() and path.resolve() == path:
            yield from ("--ro-bind", str(path), str(path))


def _read_files(identity: _Identity) -> dict[str, bytes]:
    """Return the files of `/etc`, some from the host: copying a small file is cheaper than another mount."""
    found = {path: data for path in _ETC_PATHS if (data := _read_if_changed(path, _identify(path))) is not None}
    return {**found, **identity.files(), **{path: text.encode() for path, text in _FILES}}


def _identify(path: str) -> tuple[int, int, int, int] | None:
    """Return what changes when a file is written or replaced; None if there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)


@lru_cache(maxsize=64)
def _read_if_changed(path: str, version: tuple[int, int, int, int] | None) -> bytes | None:
    return Path(path).read_bytes() if version is not None and Path(path).is_file() else None


def _etc(files: Iterable[str], first: int) -> Iterator[str]:
    for name in ETC_FOLDERS:
        if Path("/etc", name).is_dir():
            yield from ("--ro-bind", f"/etc/{name}", f"/etc/{name}")
    for position, path in enumerate(files):
        yield from ("--perms", "0444", "--file", str(first + position), path)


def _kernel(confinement: Confinement) -> Iterator[str]:
    """Yield the options for a read-only `/proc` and the few devices that programs need.

    Root's programs own the files of `/proc` even without capabilities: a writable file would allow an escape.
    """
    yield from ("--proc", "/proc")
    for name in _KERNEL_FILES:
        if os.access(f"/proc/{name}", os.R_OK):
            yield from ("--ro-bind", "/dev/null", f"/proc/{name}")
    yield from ("--remount-ro", "/proc", "--dev", "/dev", "--bind", str(confinement.shared_memory), "/dev/shm")  # noqa: S108


def _mounts(confinement: Confinement) -> Iterator[str]:
    """Yield the options for visible folders and those hidden in them, outer before inner."""
    places: dict[Path, tuple[str, ...]] = {
        Path("/tmp"): ("--bind", str(confinement.temporary), "/tmp"),  # noqa: S108
        Path(USER_HOME): ("--bind", str(confinement.user_home), USER_HOME),
    }
    for path in confinement.shown:
        places[path] = ("--ro-bind-try", str(path), str(path))
    for path in confinement.hidden:
        places[path] = ("--tmpfs", str(path))
    for path in confinement.write_paths:
        places[path] = ("--bind", str(path), str(path))
    bind = "--bind" if confinement.writable else "--ro-bind"
    places[confinement.visible] = (bind, str(confinement.visible), str(confinement.visible))
    for path in sorted(places, key=lambda path: len(path.parts)):
        yield from places[path]
    for path in confinement.hidden:
        yield from ("--remount-ro", str(path))


def make_environment(confinement: Confinement, entry: CommandStart, user: str) -> dict[str, str]:
    """Return the variables of a program, independent of the host's."""
    fixed = {"HOME": USER_HOME, "USER": user, "LOGNAME": user, "TMPDIR": "/tmp"}  # noqa: S108
    proxy = f"http://127.0.0.1:{PROXY_PORT}"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    through = dict.fromkeys(names, proxy) | {"no_proxy": "localhost,127.0.0.1", "NO_PROXY": "localhost,127.0.0.1"}
    return {**entry.environment, **fixed, **(through if confinement.network is Network.PROXY else {})}


@cache
def _shared() -> Bubblewrap:
    return Bubblewrap()


def make_backend(parts: SandboxParts) -> Bubblewrap:
    """Return the backend; it is tested once in a process."""
    return _shared()
