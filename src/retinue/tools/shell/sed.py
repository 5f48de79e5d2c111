"""Whether a call of sed only transforms text: the sed language can also run commands and write files."""

from __future__ import annotations

import re

from retinue.tools.shell.allowlist import Argv

_LONG = frozenset({"--quiet", "--silent", "--regexp-extended", "--posix", "--separate", "--unbuffered", "--null-data"})
_CLUSTER = re.compile(r"-[nErsuz]+(e?)|-(e)")
_WHOLE = re.compile(r"\\.|\[\^?\]?[^]]*\]")

_REGEX = r"/(?:\\.|[^/\\\n\[])*/"
_LINE = rf"(?:[0-9]+|\$|[0-9]+~[0-9]+|{_REGEX}I?)"
# possessive quantifiers: three adjacent runs of blanks would otherwise backtrack in cubic time
_BLANKS = r"[ \t]*+"
_ADDRESS = rf"(?:{_LINE}(?:,(?:{_LINE}|[+~][0-9]+))?)?{_BLANKS}!?{_BLANKS}"
_PART = r"(?:\\.|(?!(?P=mark))[^\\\n])*"
_SUBSTITUTION = rf"s(?P<mark>[/|,#@:%!+~_])(?P<what>{_PART})(?P=mark){_PART}(?P=mark)[gpiI0-9]*"
_COMMAND = re.compile(rf"{_BLANKS}{_ADDRESS}(?:[pdqQ=hHgGxnNDPlz]|{_SUBSTITUTION}){_BLANKS}")


def is_plain_sed(words: Argv) -> bool:
    """Return whether the arguments contain only scripts that print, delete and substitute.

    A script in a file and editing files in place are not plain.
    """
    scripts: list[str] = []
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        cluster = _CLUSTER.fullmatch(word)
        if word == "--":
            operands += rest
        elif cluster is not None:
            scripts += [next(rest, "w")] if any(cluster.groups()) else []
        elif word.startswith("--expression="):
            scripts.append(word.partition("=")[2])
        elif not word.startswith("-") or word == "-":
            operands.append(word)
        elif word not in _LONG:
            return False
    if not scripts:
        scripts = operands[:1]
    return bool(scripts) and all(map(_is_plain_script, scripts))


def _is_plain_script(script: str) -> bool:
    position = 0
    while True:
        found = _COMMAND.match(script, position)
        if found is None:
            return not script[position:].strip()
        # inside brackets, some versions of sed read the delimiter as a character, others as the end
        if "[" in _WHOLE.sub("", found.group("what") or ""):
            return False
        position = found.end()
        if position == len(script):
            return True
        if script[position] not in ";\n":
            return False
        position += 1
