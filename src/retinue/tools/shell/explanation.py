"""What a command seems to do, in words for whoever must decide; what may run is never decided from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from retinue.tools.shell.allowlist import Argv
from retinue.tools.shell.analysis import AnalysedCommand, NotAnalysable
from retinue.tools.shell.argument_spec import flags
from retinue.tools.shell.wrappers import ReviewRequired, program_name, unwrap

MAX_FILES = 12

_READS = flags("cat head tail less more grep egrep fgrep rg wc sort uniq cut diff cmp comm stat file md5sum sha256sum")
_READS |= flags("xxd hexdump od strings ls du tree jq yq sed awk nl tac rev base64")
_WRITES = flags("rm rmdir touch mkdir tee truncate shred chmod chown chgrp unlink mkfifo")
_MOVES = flags("mv cp ln install rsync scp")
_NETWORK = flags("curl wget ssh scp sftp ftp rsync nc ncat socat telnet ping dig nslookup host traceroute")
_NETWORK |= flags("pip pip3 uv npm npx pnpm yarn cargo gem brew apt apt-get dnf docker podman gh aws gcloud kubectl")
_GIT_NETWORK = flags("clone fetch pull push ls-remote remote submodule")
_SCRIPT_FIRST = flags("grep egrep fgrep rg sed awk jq yq")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{0,30}://[^\s'\"`|;&<>()]+", re.IGNORECASE)

_LOADERS = flags("curl wget aria2c xh lynx w3m elinks ssh scp sftp ftp lftp nc ncat netcat socat telnet gh glab yt-dlp")
_WORD = re.compile(r"[\w.+-]+")

Show = Callable[[str], str]


def explain_command(reading: AnalysedCommand | NotAnalysable, text: str, show: Show) -> tuple[str, ...]:
    """Lines for the reader: the programs, the files they name, and whether they seem to use the network."""
    lines: list[str] = []
    addresses = list(dict.fromkeys(_ADDRESS.findall(text)))
    match reading:
        case NotAnalysable(because):
            lines.append(f"Only a shell can read it: {because}.")
        case AnalysedCommand():
            commands = [_inner(argv) for argv in reading.commands]
            lines += [f"Runs: {show(' '.join(map(_quote, argv)))}" for argv in reading.commands]
            lines += _list_names("Reads", commands, _files_read, show)
            lines += _list_names("Changes", commands, _files_written, show)
            online = dict.fromkeys(program_name(argv) for argv in commands if _is_online(argv))
            lines += [f"Network: {', '.join(online)}"] if online else []
    lines += [f"Address: {show(address)}" for address in addresses[:MAX_FILES]]
    return tuple(lines)


def _inner(argv: Argv) -> Argv:
    layers = unwrap(argv)
    return argv if isinstance(layers, ReviewRequired) else layers[-1]


def _list_names(label: str, commands: list[Argv], pick: Callable[[Argv], Iterator[str]], show: Show) -> Iterator[str]:
    names = list(dict.fromkeys(name for argv in commands for name in pick(argv)))
    if names:
        more = f" and {len(names) - MAX_FILES} more" if len(names) > MAX_FILES else ""
        yield f"{label}: {', '.join(map(show, names[:MAX_FILES]))}{more}"


def _operands(argv: Argv) -> list[str]:
    return [word for word in argv[1:] if word and not word.startswith("-")]


def _files_read(argv: Argv) -> Iterator[str]:
    name, operands = program_name(argv), _operands(argv)
    if name in _READS:
        yield from operands[1:] if name in _SCRIPT_FIRST else operands
    elif name in _MOVES:
        yield from operands[:-1]


def _files_written(argv: Argv) -> Iterator[str]:
    name, operands = program_name(argv), _operands(argv)
    if name in _WRITES:
        yield from operands
    elif name in _MOVES:
        yield from operands[-1:]
    elif name == "sed" and any(word.startswith(("-i", "--in-place")) for word in argv):
        yield from operands[1:]


def _is_online(argv: Argv) -> bool:
    name = program_name(argv)
    return name in _NETWORK or (name == "git" and bool(_GIT_NETWORK.intersection(argv[1:3])))


def _quote(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+=:,./~^-]+", word) else "'" + word.replace("'", "'\\''") + "'"


def loads_from_network(text: str) -> bool:
    """Whether a command names a program that shows what others wrote: better once too often than not at all."""
    return not _LOADERS.isdisjoint(_WORD.findall(text))
