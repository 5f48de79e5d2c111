"""What a sandboxed command gets beyond its sandbox after approval, and what the sandbox refused to a failed one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.sandbox.confinement import ETC_FILES, ETC_FOLDERS, SYSTEM_FOLDERS, Confinement, Network, SandboxLevel
from retinue.sandbox.proxy import is_allowed
from retinue.sandbox.sandboxes import BackedSandbox
from retinue.storage.files.descriptors import read_up_to
from retinue.storage.files.openat import lies_in
from retinue.tools.shell.allowlist import Argv
from retinue.tools.shell.analysis import AnalysedCommand, NotAnalysable
from retinue.tools.shell.needs import ANY_HOST, UNSANDBOXED, Need, NeedKind, estimate_needs, find_paths, network_need
from retinue.tools.shell.safe_commands import harden, read_only_objection
from retinue.tools.shell.wrappers import innermost

MAX_PATHS = 8
_VISIBLE = ("/usr", *SYSTEM_FOLDERS, "/proc", "/dev", "/tmp", "/var/tmp", "/sys")  # noqa: S108
_VISIBLE_ETC = (*ETC_FOLDERS, *ETC_FILES, "passwd", "group", "hosts", "nsswitch.conf", "resolv.conf", "hostname")
_HOME = re.compile(r"~|\$HOME|\$\{HOME\}")


class SandboxView(Struct, frozen=True):
    """What decides whether a path is outside: the sandbox, the real home folder, and folders that are never shown."""

    enclosure: BackedSandbox
    home: str
    closed: tuple[Path, ...] = ()

    def shows(self, path: str) -> bool:
        """Return whether a command in the sandbox sees a path, or a part of what is below it."""
        confinement = self.enclosure.confinement
        places = [*map(Path, _VISIBLE), *(Path("/etc", name) for name in _VISIBLE_ETC)]
        places += [confinement.visible, confinement.own, *confinement.shown]
        return any(Path(path).is_relative_to(place) or place.is_relative_to(path) for place in places)

    def expand(self, path: str) -> str:
        """Return an absolute path in place of one that begins with the home folder."""
        return os.path.normpath(_HOME.sub(lambda _: self.home, path, count=1) if path[0] != "/" else path)


def find_needs(commands: Sequence[Argv], text: str, scope: SandboxView, named: Iterable[Need] = ()) -> tuple[Need, ...]:
    """Return what a command needs and its sandbox lacks: what the call names, and what the command shows."""
    needs = [*named, *estimate_needs(commands, text)]
    if scope.enclosure.level is not SandboxLevel.CONTAINER:
        paths = (scope.expand(path) for path in find_paths(commands))
        outside = dict.fromkeys(path for path in paths if os.path.lexists(path) and not scope.shows(path))
        needs += [Need(NeedKind.PATH, path) for path in list(outside)[:MAX_PATHS]]
    confinement = scope.enclosure.confinement
    return tuple(need for need in dict.fromkeys(needs) if not _has(confinement, need, scope))


def _has(confinement: Confinement, need: Need, scope: SandboxView) -> bool:
    """Return whether the sandbox meets a need already."""
    match need.kind:
        case NeedKind.NETWORK if scope.enclosure.reaches_network:
            if need.name == ANY_HOST or not confinement.hosts:
                return not confinement.hosts
            host, _, port = need.name.partition(":")
            return is_allowed(confinement.hosts, host, int(port or 443))
        case NeedKind.PATH:
            return scope.shows(need.name)
        case _:
            return False


def grant(needs: Sequence[Need], scope: SandboxView) -> BackedSandbox | None:
    """Return the sandbox with what is needed, or None if the command must leave it."""
    enclosure = scope.enclosure
    if any(need.leaves for need in needs):
        return None
    confinement = enclosure.confinement
    hosts = [need.name for need in needs if need.kind is NeedKind.NETWORK]
    if hosts:
        if enclosure.level is not SandboxLevel.NAMESPACES:
            return None
        allowed = () if ANY_HOST in hosts else tuple(dict.fromkeys((*confinement.hosts, *hosts)))
        confinement = replace(confinement, network=Network.PROXY, hosts=allowed)
    paths = [Path(os.path.realpath(need.name)) for need in needs if need.kind is NeedKind.PATH]
    if paths:
        if enclosure.level is SandboxLevel.CONTAINER or any(lies_in(str(path), scope.closed) for path in paths):
            return None
        hidden = [place for place in scope.closed if any(place.is_relative_to(path) for path in paths)]
        confinement = replace(
            confinement,
            shown=tuple(dict.fromkeys((*confinement.shown, *paths))),
            hidden=tuple(dict.fromkeys((*confinement.hidden, *hidden))),
        )
    granted = replace(enclosure, confinement=confinement)
    return None if enclosure.backend.find_problem(confinement) is not None else granted


_UNRESOLVED = (
    re.compile(r"[Cc]ould not resolve host(?:name)?:? ['\"‘]?([\w.-]+)"),
    re.compile(r"unable to resolve host address ['\"‘]([\w.-]+)"),
    re.compile(r"[Ff]ailed to (?:resolve|connect to) ['\"‘]?([\w.-]+\.[\w.-]+)"),
    re.compile(r"getaddrinfo (?:ENOTFOUND|EAI_AGAIN|EPERM) ([\w.-]+)"),
    re.compile(r"lookup ([\w.-]+)(?: on [^:]*)?: "),
    re.compile(r"(?m)^[\w-]+: ([\w.-]+\.[\w.-]+): (?:Temporary failure in name resolution|Name or service not known)"),
)
_NO_NETWORK = re.compile(
    r"Network is unreachable|name resolution|Could not resolve|ENETUNREACH|socket: Operation not"
    r"|Name or service not known"
)
_PATH = r"['\"‘`]?(/[^\s'\"’`:,;]+)"
_REFUSED_PATHS = (
    re.compile(
        rf"{_PATH}['\"’`]?: (?:Permission denied|Read-only file system|No such file or directory|Operation not)"
    ),
    re.compile(
        rf"(?:Permission denied|Read-only file system|No such file or directory|Operation not permitted): {_PATH}"
    ),
    re.compile(rf"cannot (?:open|access|create|stat|touch|remove|change to)\b[^'\"‘/\n]*{_PATH}"),
)
_MAX_SEARCHED = 40_000


def find_refused(output: str, text: str, commands: Sequence[Argv], scope: SandboxView) -> tuple[Need, ...]:
    """Return what a failed command would have needed, by its messages: hosts it did not reach, paths it did not see."""
    shown = output[-_MAX_SEARCHED:]
    needs: list[Need] = []
    if not scope.enclosure.reaches_network:
        hosts = [host for pattern in _UNRESOLVED for host in pattern.findall(shown)]
        needs += [network_need(host.rstrip(".")) for host in hosts]
        if not hosts and _NO_NETWORK.search(shown):
            guessed = [need for need in estimate_needs(commands, text) if need.kind is NeedKind.NETWORK]
            needs += guessed or [Need(NeedKind.NETWORK, ANY_HOST)]
    for path in dict.fromkeys(path for pattern in _REFUSED_PATHS for path in pattern.findall(shown)):
        place = Path(os.path.normpath(path))
        if not scope.shows(path):
            if os.path.lexists(path):
                needs.append(Need(NeedKind.PATH, path))
            elif place.parent.exists() and not scope.shows(str(place.parent)):
                needs.append(Need(NeedKind.PATH, str(place.parent)))
        elif _is_read_only(place, scope) and re.search(rf"{re.escape(path)}.{{0,3}}: (?:Read-only|Permission)", shown):
            needs.append(UNSANDBOXED)
    return tuple(dict.fromkeys(needs))[:MAX_PATHS]


def _is_read_only(place: Path, scope: SandboxView) -> bool:
    confinement = scope.enclosure.confinement
    writable = [confinement.own, Path("/tmp"), *((confinement.visible,) if confinement.writable else ())]  # noqa: S108
    return not any(place.is_relative_to(folder) for folder in writable)


def format_refused(needs: Sequence[Need]) -> str:
    """Tell the model what the sandbox refused, and how to repeat the command."""
    listed = ", ".join(need.describe() for need in needs)
    named = ", ".join(f'"{need}"' for need in needs)
    return f"(The sandbox refused {listed}. If it is needed, repeat the call with needs: [{named}]; the user is asked.)"


_GIT_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.sshCommand": "false",
    "gpg.program": "false",
    "protocol.ext.allow": "never",
}
_COPIES = frozenset({"clone", "fetch", "pull", "push", "submodule", "remote", "ls-remote", "bundle"})
_FILTER = re.compile(rb"^[ \t]*\[filter[ \t]+\"([^\"\\\n]+)\"\]", re.M)
_MAX_CONFIG_BYTES = 1_000_000


def git_environment(reading: AnalysedCommand | NotAnalysable, folder: int) -> Mapping[str, str]:
    """Return variables with which git in a sandbox starts no program that a repository names.

    Repositories on this machine stay reachable for commands that copy between them. Filters are disabled only where
    nothing but reading commands run, because they also decide what is stored.
    """
    commands = reading.commands if isinstance(reading, AnalysedCommand) else ()
    calls = [inner for argv in commands if (inner := innermost(argv))[0] == "git"]
    settings = dict(_GIT_SETTINGS)
    if calls and all(read_only_objection(argv) is None for argv in calls):
        for name in _find_filters(folder):
            settings |= {f"filter.{name}.{key}": "" for key in ("clean", "smudge", "process")}
            settings[f"filter.{name}.required"] = "false"
    copies = isinstance(reading, NotAnalysable) or any(_COPIES.intersection(argv[1:4]) for argv in calls)
    return {
        "GIT_ALLOW_PROTOCOL": "file" if copies else "none",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
        "GIT_CONFIG_COUNT": str(len(settings)),
        **{f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(settings)},
        **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(settings.values())},
    }


def _find_filters(folder: int) -> list[str]:
    """Return the filters that the settings of a repository define."""
    try:
        descriptor = os.open(".git/config", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return []
    try:
        names = _FILTER.findall(read_up_to(descriptor, _MAX_CONFIG_BYTES, _MAX_CONFIG_BYTES))
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return [name.decode("utf-8", "replace") for name in dict.fromkeys(names)]


def harden_text(reading: AnalysedCommand | NotAnalysable) -> str | None:
    """Return the text of a command line with hardened git commands that only read, or None if it has none."""
    if isinstance(reading, NotAnalysable):
        return None
    hardened = tuple(map(_harden, reading.commands))
    return None if hardened == reading.commands else reading.with_commands(hardened).to_text()


def _harden(argv: Argv) -> Argv:
    inner = innermost(argv)
    if inner[0] != "git" or read_only_objection(inner) is not None:
        return argv
    return (*argv[: len(argv) - len(inner)], *harden(inner))
