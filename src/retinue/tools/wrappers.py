"""Programs that start other programs: either what they start is known and judged instead, or they are refused."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from retinue.tools.allowlist import Argv
from retinue.tools.usage import Usage, flags

MOST_LAYERS = 8

_NUMBER = r"-?[0-9]{1,6}"
_DURATION = r"[0-9]{1,9}(?:\.[0-9]{1,9})?[smhd]?"
_BUFFER = r"0|L|[0-9]{1,9}[KMG]?"


class Refused(Struct, frozen=True):
    """A command that is never allowed by a rule; `because` says why a person must look at it.

    `inline_code` tells that it would run code that stands in its arguments or comes from its input.
    """

    because: str
    inline_code: bool = False


class _Transparent(Struct, frozen=True):
    """A wrapper that runs the rest of its words unchanged, after its own flags and `operands` words of its own."""

    usage: Usage
    operands: tuple[str, ...] = ()


_TRANSPARENT: dict[str, _Transparent] = {
    "nice": _Transparent(
        Usage(valued=(("-n", _NUMBER), ("--adjustment", _NUMBER)), pattern=re.compile(r"-n?-?[0-9]{1,3}"))
    ),
    "nohup": _Transparent(Usage()),
    "timeout": _Transparent(
        Usage(
            flags("-v --verbose --preserve-status"),
            (
                *(("-k", _DURATION), ("--kill-after", _DURATION)),
                *(("-s", "[A-Z0-9]+"), ("--signal", "[A-Z0-9]+")),
            ),
        ),
        operands=(_DURATION,),
    ),
    "stdbuf": _Transparent(
        Usage(
            valued=tuple((flag, _BUFFER) for flag in ("-i", "-o", "-e", "--input", "--output", "--error")),
            pattern=re.compile(rf"-[ioe](?:{_BUFFER})"),
        )
    ),
    "setsid": _Transparent(Usage(flags("-w --wait"))),
    "ionice": _Transparent(
        Usage(flags("-t"), (("-c", "[0-3]"), ("-n", "[0-7]")), pattern=re.compile(r"-(?:c[0-3]|n[0-7])"))
    ),
    "time": _Transparent(Usage(flags("-p -v --verbose --portability"))),
    "env": _Transparent(Usage()),
}

_OPAQUE = frozenset(
    {"xargs", "busybox", "toybox", "sudo", "doas", "su", "runuser", "pkexec", "script", "scriptreplay", "flock"}
    | {
        "chroot",
        "unshare",
        "nsenter",
        "bwrap",
        "firejail",
        "proot",
        "fakeroot",
        "fakechroot",
        "faketime",
        "systemd-run",
    }
    | {"watch", "parallel", "sem", "entr", "watchexec", "ssh", "mosh", "rsh", "sshpass", "ssh-agent", "autossh"}
    | {"strace", "ltrace", "gdb", "lldb", "valgrind", "perf", "rr", "uftrace", "catchsegv"}
    | {"setarch", "linux32", "linux64", "i386", "x86_64", "taskset", "chrt", "prlimit", "numactl", "cgexec", "setpriv"}
    | {"capsh", "softlimit", "eatmydata", "caffeinate", "dbus-run-session", "dbus-launch", "xvfb-run", "unbuffer"}
    | {"expect", "tmux", "screen", "dtach", "at", "batch", "crontab", "start-stop-daemon", "daemonize", "run-parts"}
    | {"torsocks", "torify", "proxychains", "proxychains4", "tsocks", "choom", "uclampset", "schedtool"}
    | {"rlwrap", "hyperfine", "run0", "systemd-inhibit", "systemd-cat", "pdsh", "chronic"}
    | {"xterm", "uxterm", "x-terminal-emulator", "gnome-terminal", "konsole", "alacritty", "kitty", "wezterm", "foot"}
    | {"nsjail", "gosu", "su-exec", "chpst", "setuidgid", "envdir", "dumb-init", "tini", "catatonit", "direnv", "op"}
)
_VERSION = re.compile(r"(?<=.)(?:-[0-9][0-9.]*|\.(?:basic|tiny|nox|gtk3?|athena|traditional|openbsd))\Z")
_GNU = frozenset(
    {"gsed", "gtar", "gfind", "gxargs", "genv", "gnice", "gnohup", "gtimeout", "gstdbuf", "gsort", "gsplit"}
)
_LOADER = re.compile(r"ld(?:-linux|-musl|64|\.so).*|ld-[0-9].*")
_ASSIGNMENT = re.compile(r"[^=]*=", re.DOTALL)


def unwrap(argv: Argv) -> tuple[Argv, ...] | Refused:
    """The wrappers around a command and, last, the command itself; just the command where there is no wrapper."""
    layers: list[Argv] = []
    while True:
        name = program_name(argv)
        if name in _OPAQUE or _LOADER.fullmatch(name):
            return Refused(f"`{name}` starts other programs")
        wrapper = _TRANSPARENT.get(name)
        if wrapper is None or argv == ("env",):
            return (*layers, argv)
        end = _own_words(wrapper, argv)
        if isinstance(end, Refused):
            return end
        layers.append(argv[:end])
        argv = argv[end:]
        if len(layers) > MOST_LAYERS:
            return Refused(f"`{name}` is wrapped too often")


def _own_words(wrapper: _Transparent, argv: Argv) -> int | Refused:
    """How many words belong to the wrapper itself."""
    name = argv[0]
    values = dict(wrapper.usage.valued)
    end = 1
    while end < len(argv) and argv[end].startswith("-"):
        end += 2 if argv[end] in values else 1
    reason = replace(wrapper.usage, least_operands=0).objection(argv[1:end])
    if reason is not None or "--" in argv[1:end]:
        return Refused(f"in `{name}`, {reason or '`--` is not expected'}")
    for shape in wrapper.operands:
        if end >= len(argv) or not re.fullmatch(shape, argv[end]):
            return Refused(f"in `{name}`, an operand is not expected")
        end += 1
    if end >= len(argv):
        return Refused(f"`{name}` is given no command")
    if program_name(argv) == "env" and _ASSIGNMENT.match(argv[end]):
        return Refused(f"`{name}` sets variables")
    return end


def program_name(argv: Argv) -> str:
    """The name of the program without its folder and the version or flavour that distributions add to it.

    Some file systems do not tell capitals apart.
    """
    name = _VERSION.sub("", argv[0].rpartition("/")[2].lower())
    return name[1:] if name in _GNU else name
