"""Explanations of a command for the person who must approve it; nothing is decided from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby

from msgspec import Struct

from retinue.tools.shell.allowlist import Argv
from retinue.tools.shell.analysis import AnalysedCommand, NotAnalysable
from retinue.tools.shell.argument_spec import flags
from retinue.tools.shell.wrappers import innermost, program_name

MAX_FILES = 12
MAX_SHORT_LINES, MAX_SHORT_CHARS = 20, 2_000
_MAX_SEARCHED = 20_000

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


def explain_command(reading: AnalysedCommand | NotAnalysable, text: str) -> tuple[str, ...]:
    """Return lines that name the programs, the files they read or change, and whether they seem to use the network.

    What a single command shows by itself is not repeated: its words and the addresses among them.
    """
    lines: list[str] = []
    addresses = list(dict.fromkeys(_ADDRESS.findall(text)))
    match reading:
        case NotAnalysable(because):
            lines.append(f"Only a shell can read it: {because}.")
        case AnalysedCommand():
            commands = [innermost(argv) for argv in reading.commands]
            shown = [" ".join(map(_quote, argv)) for argv in reading.commands]
            if shown == [text.strip()]:
                addresses = []
            else:
                lines += [f"Runs: {show_exactly(command)}" for command in shown]
            lines += _list_names("Reads", commands, _files_read)
            lines += _list_names("Changes", commands, _files_written)
            online = dict.fromkeys(program_name(argv) for argv in commands if _is_online(argv))
            lines += [f"Network: {', '.join(online)}"] if online else []
    lines += [f"Address: {show_exactly(address)}" for address in addresses[:MAX_FILES]]
    if text.count("\n") >= MAX_SHORT_LINES or len(text) > MAX_SHORT_CHARS:
        lines.append(f"Length: {text.count(chr(10)) + 1:,} lines, {len(text):,} characters; read it to its end")
    return tuple(lines)


class _Risk(Struct, frozen=True):
    """A danger that a person should read first; `pattern` is searched for in the text of a command."""

    pattern: re.Pattern[str]
    because: str


_START = r"(?:^|[;&|(\n`]|\$\()\s*(?:sudo\s+(?:-\S+\s+)*)?"
_RISKS = (
    _Risk(
        re.compile(
            r"\b(?:curl|wget|fetch)\b[^;&]{0,400}?\|\s*(?:sudo\s+)?(?:env\s+)?\S*(?:sh|python[0-9.]*|perl|ruby|node)\b"
        ),
        "it runs code that it downloads",
    ),
    _Risk(re.compile(rf"{_START}(?:sudo|doas|su|pkexec)\b|\bsudo\b"), "it can run as administrator"),
    _Risk(re.compile(rf"{_START}(?:mkfs\S*|shred|dd|wipefs)\b"), "it can overwrite a whole disk"),
    _Risk(re.compile(rf"{_START}(?:rm|rmdir|unlink|truncate)\b|\s-delete\b"), "it deletes files"),
    _Risk(re.compile(rf"{_START}git\s+push\b|{_START}(?:scp|sftp|rsync)\b"), "it can send files to another computer"),
)


def describe_risk(text: str) -> str:
    """Return the greatest known danger of a command outside the sandbox, as a clause."""
    found = next((risk.because for risk in _RISKS if risk.pattern.search(text[:_MAX_SEARCHED])), None)
    return found or "it can read and change your files and use the network"


def _list_names(label: str, commands: list[Argv], pick: Callable[[Argv], Iterator[str]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for argv in commands for name in pick(argv)))
    if names:
        more = f" and {len(names) - MAX_FILES} more" if len(names) > MAX_FILES else ""
        yield f"{label}: {', '.join(map(show_exactly, names[:MAX_FILES]))}{more}"


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
    """Return whether a command names a program that can print downloaded text.

    Any mention counts: marking local output as untrusted does less harm than trusting downloaded text.
    """
    return not _LOADERS.isdisjoint(_WORD.findall(text))


def show_exactly(text: str) -> str:
    """Return a text as a person must see it before approving it: complete, with invisible characters escaped.

    Line breaks stay. Control, bidirectional, zero-width and unusual space characters become escapes such as ⟨U+202E⟩.
    """
    return "".join(_show_character(character) for character in text)


MAX_BLANKS, MAX_LINE_BREAKS = 24, 2
_ZERO_WIDTH = frozenset("\u200b\u200c\u200d\u2060\ufeff")


def show_compactly(text: str) -> str:
    """Return the same, with long runs of blanks and of empty lines replaced by their visible length.

    Otherwise a command could move its dangerous part out of the visible part of a window.
    """
    return "".join(_show_padding("".join(run)) if blank else show_exactly("".join(run)) for blank, run in _runs(text))


def _runs(text: str) -> Iterator[tuple[bool, Iterator[str]]]:
    return groupby(text, key=lambda character: character.isspace() or character in _BLANK or character in _ZERO_WIDTH)


def _show_padding(run: str) -> str:
    breaks = run.count("\n")
    if breaks > MAX_LINE_BREAKS:
        return f"\n⟨{breaks} line breaks⟩\n"
    return f" ⟨{len(run)} blanks⟩ " if len(run) > MAX_BLANKS else show_exactly(run)


def show_on_one_line(text: str) -> str:
    """Return the same with line breaks escaped, for values that must not look like further lines of a question."""
    return show_exactly(text).replace("\n", _escape("\n"))


_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {chr(code) for code in range(0xFE00, 0xFE10)}


def _show_character(character: str) -> str:
    if character == "\n" or (character.isprintable() and character not in _BLANK and character < "\U000e0000"):
        return character
    return _escape(character)


def _escape(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"
