"""Wrappers: programs that start other programs, such as `nice` and `sudo`.

If it is known exactly what a wrapper starts, that command is judged instead; otherwise a person must review it.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from retinue.tools.shell.allowlist import Argv
from retinue.tools.shell.argument_spec import ArgumentSpec, flags

MAX_LAYERS = 8

_NUMBER = r"-?[0-9]{1,6}"
_DURATION = r"[0-9]{1,9}(?:\.[0-9]{1,9})?[smhd]?"
_BUFFER = r"0|L|[0-9]{1,9}[KMG]?"


class ReviewRequired(Struct, frozen=True):
    """A command that no rule allows, so that a person must review it; `because` says why.

    `inline_code` is true if it would run code that is part of its arguments or comes from its input.
    """

    because: str
    inline_code: bool = False


class _Transparent(Struct, frozen=True):
    """A wrapper that runs the rest of its words unchanged, after its own flags and `operands`."""

    usage: ArgumentSpec
    operands: tuple[str, ...] = ()


_TRANSPARENT: dict[str, _Transparent] = {
    "nice": _Transparent(
        ArgumentSpec(value_flags=(("-n", _NUMBER), ("--adjustment", _NUMBER)), pattern=re.compile(r"-n?-?[0-9]{1,3}"))
    ),
    "nohup": _Transparent(ArgumentSpec()),
    "timeout": _Transparent(
        ArgumentSpec(
            flags("-v --verbose --preserve-status"),
            (
                *(("-k", _DURATION), ("--kill-after", _DURATION)),
                *(("-s", "[A-Z0-9]+"), ("--signal", "[A-Z0-9]+")),
            ),
        ),
        operands=(_DURATION,),
    ),
    "stdbuf": _Transparent(
        ArgumentSpec(
            value_flags=tuple((flag, _BUFFER) for flag in ("-i", "-o", "-e", "--input", "--output", "--error")),
            pattern=re.compile(rf"-[ioe](?:{_BUFFER})"),
        )
    ),
    "setsid": _Transparent(ArgumentSpec(flags("-w --wait"))),
    "ionice": _Transparent(
        ArgumentSpec(flags("-t"), (("-c", "[0-3]"), ("-n", "[0-7]")), pattern=re.compile(r"-(?:c[0-3]|n[0-7])"))
    ),
    "time": _Transparent(ArgumentSpec(flags("-p -v --verbose --portability"))),
    "env": _Transparent(ArgumentSpec()),
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


def unwrap(argv: Argv) -> tuple[Argv, ...] | ReviewRequired:
    """Return the wrappers around a command and, last, the command itself."""
    layers: list[Argv] = []
    while True:
        name = program_name(argv)
        if name in _OPAQUE or _LOADER.fullmatch(name):
            return ReviewRequired(f"`{name}` starts other programs")
        wrapper = _TRANSPARENT.get(name)
        if wrapper is None or argv == ("env",):
            return (*layers, argv)
        end = _count_own_words(wrapper, argv)
        if isinstance(end, ReviewRequired):
            return end
        layers.append(argv[:end])
        argv = argv[end:]
        if len(layers) > MAX_LAYERS:
            return ReviewRequired(f"`{name}` has too many wrappers")


def _count_own_words(wrapper: _Transparent, argv: Argv) -> int | ReviewRequired:
    """Return how many words belong to the wrapper itself."""
    name = argv[0]
    values = dict(wrapper.usage.value_flags)
    end = 1
    while end < len(argv) and argv[end].startswith("-"):
        end += 2 if argv[end] in values else 1
    reason = replace(wrapper.usage, min_operands=0).objection(argv[1:end])
    if reason is not None or "--" in argv[1:end]:
        return ReviewRequired(f"in `{name}`, {reason or '`--` is not expected'}")
    for shape in wrapper.operands:
        if end >= len(argv) or not re.fullmatch(shape, argv[end]):
            return ReviewRequired(f"in `{name}`, an operand is not expected")
        end += 1
    if end >= len(argv):
        return ReviewRequired(f"`{name}` has no command to run")
    if program_name(argv) == "env" and _ASSIGNMENT.match(argv[end]):
        return ReviewRequired(f"`{name}` sets variables")
    return end


def innermost(argv: Argv) -> Argv:
    """Return the command inside all wrappers, or the whole command if it cannot be unwrapped."""
    layers = unwrap(argv)
    return argv if isinstance(layers, ReviewRequired) else layers[-1]


def program_name(argv: Argv) -> str:
    """Return the name of a program without its folder and without a version or flavour suffix.

    The name is in lower case because some file systems ignore case.
    """
    name = _VERSION.sub("", argv[0].rpartition("/")[2].lower())
    return name[1:] if name in _GNU else name
