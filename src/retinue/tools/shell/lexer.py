"""Lexer for command lines: words, operators and redirections, and matching of the wildcards in words.

It refuses everything that two shells could interpret differently. It accepts plain characters, `'…'`, `"…"` and `\\`
without expansions, `*`, `?` and simple `[…]` as wildcards, `~` and `$HOME` if the home folder is known, comments, the
operators `|`, `&&`, `||`, `;`, and redirections to `/dev/null` and between standard output and standard error. A
fuzzing test compares what is accepted with bash and dash.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence

from msgspec import Struct, field


class AnyRun(Struct, frozen=True):
    """Any number of characters, including none."""


class AnyOf(Struct, frozen=True):
    """One character out of a set, or with `negated` one that is not in it; the empty negated set is any character."""

    characters: frozenset[str] = frozenset()
    negated: bool = True

    def accepts(self, character: str) -> bool:
        return (character in self.characters) is not self.negated


Wildcard = AnyRun | AnyOf
PatternElement = str | Wildcard
"""A literal character or a wildcard."""

ANY_RUN = AnyRun()
ANY_ONE = AnyOf()


def has_wildcard(marks: Sequence[PatternElement]) -> bool:
    """Return whether any element is a wildcard."""
    return any(not isinstance(mark, str) for mark in marks)


def matches(marks: Sequence[PatternElement], name: str) -> bool:
    """Return whether the whole name matches.

    Backtracking only ever returns to the last `AnyRun`, so the time is at most the product of the two lengths.
    """
    at = position = 0
    run = resume = -1
    while position < len(name):
        mark = marks[at] if at < len(marks) else None
        if mark == ANY_RUN:
            run, resume = at, position
            at += 1
        elif mark == name[position] or (isinstance(mark, AnyOf) and mark.accepts(name[position])):
            at, position = at + 1, position + 1
        elif run >= 0:
            resume += 1
            at, position = run + 1, resume
        else:
            return False
    return all(mark == ANY_RUN for mark in marks[at:])


MAX_TOKENS = 1_000

MEANINGS = {
    "$": "`$` expands variables or commands",
    "`": "a backtick runs a command",
    "\\": "`\\` at the end joins lines",
    "&": "`&` starts a background process",
    "<": "`<` redirects input",
    ">": "`>` redirects output",
    "(": "`(` starts a subshell",
    ")": "`)` ends a subshell",
    "{": "`{` expands to several words",
    "}": "`}` expands to several words",
    "[": "`[` is an unsupported file name pattern",
    "~": "`~` expands to a home folder",
    "\n": "a line break separates commands",
    "\r": "a carriage return separates commands",
}

_BLANK = " \t"
_ENDS_WORD = " \t;|&"
_PLAIN = frozenset(string.ascii_letters + string.digits + "_@%+=:,./-^!]#")
_HOME = re.compile(r"\$HOME(?![A-Za-z0-9_])|\$\{HOME\}")
_PLAIN_HOME = re.compile(r"(?:/[A-Za-z0-9_.@+-]+)+")
_BRACES = re.compile(r"\{[A-Za-z0-9_-]*\}")
_ITEM = r"[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|[A-Za-z0-9_.]"
_BRACKET = re.compile(rf"\[(!?)((?:{_ITEM})+)\]")
_DOLLAR_IS_PLAIN_BEFORE = frozenset(' "/|,.:%=')
_REDIRECTION = re.compile(r"(?:([012]?)>>?[ \t]*/dev/null|(0?)<[ \t]*/dev/null|2>&1|1?>&2)(?=[ \t;|&]|\Z)")


class UnsupportedSyntax(Exception):
    """The text uses syntax that the lexer does not support; the message completes "cannot be analysed: …"."""


class Word(Struct, frozen=True):
    """A word without its quotes; `marks` is the same text with wildcards distinguished from quoted characters.

    `text` is also the result of wildcards that match no file. `quoted` is true if any part was quoted.
    """

    text: str
    marks: tuple[PatternElement, ...]
    quoted: bool

    @property
    def wild(self) -> bool:
        return has_wildcard(self.marks)


class Operator(Struct, frozen=True):
    """`|`, `&&`, `||` or `;`."""

    text: str


class Redirection(Struct, frozen=True):
    """A stream that is redirected to another stream, or to the null device (`target` is None)."""

    stream: int
    target: int | None = None


Lexeme = Word | Operator | Redirection


def lex(text: str, home: str | None = None) -> list[Lexeme]:
    """Split a command line into lexemes; `home` is the value of `~` and `$HOME`."""
    found: list[Lexeme] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character in _BLANK:
            position += 1
            continue
        if character == "#":
            _check_characters(text[position:])
            break
        redirection = _REDIRECTION.match(text, position)
        if redirection is not None:
            found.append(_redirect(redirection))
            position = redirection.end()
        elif character in ";|&":
            operator = _operator(text, position)
            found.append(operator)
            position += len(operator.text)
        else:
            reader = _WordReader(text, position, home)
            found.append(reader.read())
            position = reader.position
        if len(found) > MAX_TOKENS:
            raise UnsupportedSyntax(f"it has more than {MAX_TOKENS:,} words")
    return found


def _operator(text: str, position: int) -> Operator:
    two = text[position : position + 2]
    if two in ("&&", "||"):
        return Operator(two)
    if two[0] == "&" or two == "|&":
        raise UnsupportedSyntax(MEANINGS["&"])
    return Operator(two[0])


def _redirect(found: re.Match[str]) -> Redirection:
    if "&" in found.group():
        return Redirection(2, 1) if found.group().startswith("2") else Redirection(1, 2)
    if "<" in found.group():
        return Redirection(0)
    return Redirection(int(found.group(1) or "1"))


class _WordReader(Struct):
    """Reads one word that starts at a position."""

    text: str
    position: int
    home: str | None
    pieces: list[str] = field(default_factory=list)
    marks: list[PatternElement] = field(default_factory=list)
    quoted: bool = False

    def read(self) -> Word:
        while self.position < len(self.text) and self.text[self.position] not in _ENDS_WORD:
            match self.text[self.position]:
                case "'":
                    self._single_quotes()
                case '"':
                    self._double_quotes()
                case "\\":
                    self._backslash()
                case "~":
                    self._tilde()
                case "$":
                    self._dollar()
                case "*" | "?" | "[":
                    self._wildcard()
                case "{":
                    self._braces()
                case character:
                    self._plain(character)
        return Word("".join(self.pieces), tuple(self.marks), self.quoted)

    def _add(self, text: str) -> None:
        self.pieces.append(text)
        self.marks += text

    def _single_quotes(self) -> None:
        end = self.text.find("'", self.position + 1)
        if end < 0:
            raise UnsupportedSyntax("a quote is not closed")
        self._add(_check_characters(self.text[self.position + 1 : end], allowed="\n\t"))
        self.quoted = True
        self.position = end + 1

    def _double_quotes(self) -> None:
        self.quoted = True
        self.position += 1
        while (character := self._peek()) != '"':
            match character:
                case "":
                    raise UnsupportedSyntax("a quote is not closed")
                case "\\" if self._peek(1) in ("", "\n"):
                    raise UnsupportedSyntax(MEANINGS["\\"])
                case "\\" if self._peek(1) in '$`"\\':
                    self._add(self._peek(1))
                    self.position += 2
                case "$" if self._peek(1) in _DOLLAR_IS_PLAIN_BEFORE:
                    self._add("$")
                    self.position += 1
                case "$":
                    self._home_folder()
                case "`":
                    raise UnsupportedSyntax(MEANINGS["`"])
                case _:
                    self._add(_check_characters(character, allowed="\n\t"))
                    self.position += 1
        self.position += 1

    def _backslash(self) -> None:
        following = self._peek(1)
        if following in ("", "\n"):
            raise UnsupportedSyntax(MEANINGS["\\"])
        self._add(_check_characters(following))
        self.quoted = True
        self.position += 2

    def _tilde(self) -> None:
        """Shells expand a tilde at the start of a word, and some also after `:` or `=`."""
        before = "".join(self.pieces[-1:])[-1:]
        if before and before not in ":=":
            self._plain("~")
            return
        if self.home is None or self.pieces or self.quoted or self._peek(1) not in ("", "/", *_ENDS_WORD):
            raise UnsupportedSyntax(MEANINGS["~"])
        self._add(_check_home(self.home))
        self.position += 1

    def _dollar(self) -> None:
        if self._peek(1) in ("", *_BLANK):
            self._add("$")
            self.position += 1
        else:
            self._home_folder()

    def _home_folder(self) -> None:
        found = _HOME.match(self.text, self.position)
        if found is None or self.home is None:
            raise UnsupportedSyntax(MEANINGS["$"])
        self._add(_check_home(self.home))
        self.position = found.end()

    def _wildcard(self) -> None:
        character = self.text[self.position]
        if character == "[" and not self.pieces and not self.quoted and self._peek(1) in ("", *_BLANK):
            self._add("[")
            self.position += 1
            return
        if character == "[":
            bracket = _BRACKET.match(self.text, self.position)
            if bracket is None:
                raise UnsupportedSyntax(MEANINGS["["])
            self._add_wild(bracket.group(), _bracket(bracket))
        else:
            self._add_wild(character, ANY_RUN if character == "*" else ANY_ONE)

    def _add_wild(self, symbol: str, wildcard: Wildcard) -> None:
        self.pieces.append(symbol)
        self.marks.append(wildcard)
        self.position += len(symbol)

    def _braces(self) -> None:
        """Braces around one plain word are not expanded: `{}`, `HEAD@{1}`."""
        found = _BRACES.match(self.text, self.position)
        if found is None:
            raise UnsupportedSyntax(MEANINGS["{"])
        self._add(found.group())
        self.position = found.end()

    def _plain(self, character: str) -> None:
        if character not in _PLAIN and character != "~" and not (character > "\x7f" and character.isalnum()):
            raise UnsupportedSyntax(describe_character(character))
        self._add(character)
        self.position += 1

    def _peek(self, further: int = 0) -> str:
        return self.text[self.position + further : self.position + further + 1]


def _bracket(found: re.Match[str]) -> AnyOf:
    """Return the characters in brackets: single ones, and ranges that do not depend on the locale."""
    negation, inside = found.groups()
    characters: set[str] = set()
    for item in re.findall(_ITEM, inside):
        if item[0] > item[-1]:
            raise UnsupportedSyntax(MEANINGS["["])
        characters.update(map(chr, range(ord(item[0]), ord(item[-1]) + 1)))
    return AnyOf(frozenset(characters), negated=bool(negation))


def _check_home(home: str) -> str:
    if not _PLAIN_HOME.fullmatch(home):
        raise UnsupportedSyntax(MEANINGS["~"])
    return home


def _check_characters(text: str, allowed: str = "\t") -> str:
    for character in text:
        if character not in allowed and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            raise UnsupportedSyntax(describe_character(character))
    return text


def describe_character(character: str) -> str:
    """Return the effect of a character that is refused."""
    return MEANINGS.get(character, f"it contains the character U+{ord(character):04X}")
