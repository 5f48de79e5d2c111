"""A parser for JSON5; errors state the position and what was expected."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from retinue.config.json5_tree import Array, Comment, Document, Member, Node, Object, Scalar, line_starts, position
from retinue.core.errors import ConfigError

MAX_DEPTH = 100
_MAX_DIGITS = 400


class Json5Error(ConfigError):
    """A text is not JSON5; the message starts with `line:column`."""

    def __init__(self, line: int, column: int, problem: str) -> None:
        super().__init__(f"{line}:{column}: {problem}")
        self.line = line
        self.column = column
        self.problem = problem


def parse(text: str) -> Document:
    """Parse a JSON5 text; raise `Json5Error` if it is not valid."""
    return _Parser(text).document()


def is_blank(text: str) -> bool:
    """Return whether a text contains only white space and comments."""
    parser = _Parser(text)
    parser.skip_trivia()
    return parser.at == len(text)


def skip_trivia(text: str, at: int) -> int:
    """Return the offset of the next character from `at` on that is neither white space nor in a comment."""
    parser = _Parser(text)
    parser.at = at
    parser.skip_trivia()
    return parser.at


def is_identifier(text: str) -> bool:
    """Return whether a key needs no quotes."""
    return bool(text) and _identifier_end(text, 0) == len(text)


_SPACE = re.compile("[\t\n\v\f\r \u00a0\ufeff\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*")
_LINE_COMMENT = re.compile("//[^\n\r\u2028\u2029]*")
_PLAIN = {'"': re.compile(r'[^"\\\n\r]*'), "'": re.compile(r"[^'\\\n\r]*")}
_NUMBER = re.compile(
    r"[+-]?(?:(?P<word>Infinity|NaN)|(?P<hex>0[xX][0-9a-fA-F]+)|(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
)
_WORD = re.compile(r"[^\s,:{}\[\]\"']{1,40}")
_ASCII_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_HEX_LENGTH = {"x": 2, "u": 4}


def _identifier_end(text: str, at: int) -> int:
    """Return the end of the identifier at `at`; `at` itself if there is none."""
    found = _ASCII_NAME.match(text, at)
    end = found.end() if found else at
    while end < len(text) and _continues_name(text[end], first=end == at):
        end += 1
    return end


def _continues_name(char: str, *, first: bool) -> bool:
    category = unicodedata.category(char)
    if category in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nl") or char in "$_":
        return True
    return not first and (category in ("Mn", "Mc", "Nd", "Pc") or char in "\u200c\u200d")


class _Parser:
    """A recursive-descent parser for one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.comments: list[Comment] = []
        self.overridden: list[Member] = []

    def document(self) -> Document:
        self.skip_trivia()
        root = self.value(0)
        self.skip_trivia()
        if self.at < len(self.text):
            raise self.error(f"found {self.seen()} after the end of the value, expected the end of the file")
        return Document(self.text, root, tuple(self.comments), tuple(self.overridden))

    def error(self, problem: str, at: int | None = None) -> Json5Error:
        line, column = position(line_starts(self.text), self.at if at is None else at)
        return Json5Error(line, column, problem)

    def seen(self) -> str:
        """Describe the next character for an error message."""
        if self.at >= len(self.text):
            return "the end of the file"
        word = _WORD.match(self.text, self.at)
        return repr(word[0] if word else self.text[self.at])

    def skip_trivia(self) -> None:
        text = self.text
        while True:
            found = _SPACE.match(text, self.at)
            assert found is not None
            self.at = found.end()
            if text.startswith("//", self.at):
                line = _LINE_COMMENT.match(text, self.at)
                assert line is not None
                end = line.end()
            elif text.startswith("/*", self.at):
                end = text.find("*/", self.at + 2) + 2
                if end == 1:
                    raise self.error("a comment starts here and never ends, expected '*/'")
            else:
                return
            self.comments.append(Comment(self.at, end, text[self.at : end]))
            self.at = end

    def value(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} levels of nesting, expected fewer")
        char = self.text[self.at : self.at + 1]
        if char == "{":
            return self.object(depth)
        if char == "[":
            return self.array(depth)
        if char in _PLAIN:
            start = self.at
            text = self.string()
            return Scalar(start, self.at, text)
        return self.number_or_word()

    def object(self, depth: int) -> Object:
        start = self.at
        self.at += 1
        members: list[Member] = []
        seen: dict[str, Member] = {}
        for _ in self.elements("}", "a key or '}'", start):
            member = self.member(depth)
            if member.key in seen:
                self.overridden.append(seen[member.key])
            seen[member.key] = member
            members.append(member)
        return Object(start, self.at, tuple(members))

    def array(self, depth: int) -> Array:
        start = self.at
        self.at += 1
        items = [self.value(depth + 1) for _ in self.elements("]", "a value or ']'", start)]
        return Array(start, self.at, tuple(items))

    def elements(self, close: str, wanted: str, start: int) -> Iterator[None]:
        """Yield before each element of a container; parse the commas between them and the closing bracket."""
        first = True
        while True:
            self.skip_trivia()
            if self.text.startswith(close, self.at):
                self.at += 1
                return
            if not first:
                if not self.text.startswith(",", self.at):
                    raise self.error(f"found {self.seen()}, expected ',' or '{close}'{self.opened(start)}")
                self.at += 1
                self.skip_trivia()
                if self.text.startswith(close, self.at):
                    self.at += 1
                    return
            if self.at >= len(self.text) or self.text[self.at] == ",":
                raise self.error(f"found {self.seen()}, expected {wanted}{self.opened(start)}")
            first = False
            yield

    def opened(self, start: int) -> str:
        """Return where the unclosed container starts if the file ended; otherwise an empty text."""
        if self.at < len(self.text):
            return ""
        line, column = position(line_starts(self.text), start)
        return f" (the '{self.text[start]}' of {line}:{column} is not closed)"

    def member(self, depth: int) -> Member:
        start = self.at
        key = self.string() if self.text[start] in "\"'" else self.name()
        key_end = self.at
        self.skip_trivia()
        if not self.text.startswith(":", self.at):
            hint = ""
            if self.text[start] not in "\"'" and self.at < len(self.text) and self.text[self.at] in "-./@":
                hint = "; a key with such a character needs quotes"
            raise self.error(f"found {self.seen()}, expected ':' after the key '{key}'{hint}")
        self.at += 1
        self.skip_trivia()
        return Member(key, start, key_end, self.value(depth + 1))

    def name(self) -> str:
        """Parse an unquoted key, which may contain `\\uXXXX` escapes."""
        start = self.at
        pieces: list[str] = []
        while True:
            end = _identifier_end(self.text, self.at)
            if pieces:  # a digit may follow an escape
                while end < len(self.text) and _continues_name(self.text[end], first=False):
                    end += 1
            pieces.append(self.text[self.at : end])
            self.at = end
            if not self.text.startswith("\\u", self.at):
                break
            self.at += 1
            pieces.append(self.escape(start))
        name = "".join(pieces)
        if not is_identifier(name):
            self.at = start
            raise self.error(f"found {self.seen()}, expected a key")
        return name

    def string(self) -> str:
        start = self.at
        quote = self.text[start]
        plain = _PLAIN[quote]
        self.at += 1
        pieces: list[str] = []
        while True:
            found = plain.match(self.text, self.at)
            assert found is not None
            pieces.append(found[0])
            self.at = found.end()
            char = self.text[self.at : self.at + 1]
            self.at += 1
            if char == quote:
                break
            if char != "\\":
                where = "file" if not char else "line"
                raise self.error(f"this string has no end before the end of the {where}, expected {quote}", start)
            pieces.append(self.escape(start))
        value = "".join(pieces)
        if "\\u" in self.text[start : self.at]:
            value = self.join_surrogates(value, start)
        return value

    def escape(self, start: int) -> str:
        """Parse the rest of an escape sequence."""
        char = self.text[self.at : self.at + 1]
        self.at += 1
        following = self.text[self.at : self.at + 1]
        if char in _HEX_LENGTH:
            digits = self.text[self.at : self.at + _HEX_LENGTH[char]]
            if not re.fullmatch(f"[0-9a-fA-F]{{{_HEX_LENGTH[char]}}}", digits):
                raise self.error(
                    f"'\\{char}' without its digits, expected {_HEX_LENGTH[char]} hexadecimal ones", self.at - 2
                )
            self.at += len(digits)
            return chr(int(digits, 16))
        if char == "\r":
            self.at += following == "\n"
            return ""
        if char in ("\n", "\u2028", "\u2029"):
            return ""
        if not char:
            raise self.error("this string has no end before the end of the file, expected a quote", start)
        if "1" <= char <= "9" or (char == "0" and "0" <= following <= "9"):
            raise self.error(f"'\\{char}' is not an escape, expected '\\x' and two hexadecimal digits", self.at - 2)
        return _ESCAPES.get(char, char)

    def join_surrogates(self, value: str, start: int) -> str:
        """Join each `\\uD83D\\uDE00` pair to one character; half a pair is an error."""
        try:
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self.error("this string holds half a '\\u' pair, expected both halves", start) from None

    def number_or_word(self) -> Scalar:
        start = self.at
        found = _NUMBER.match(self.text, start)
        if found:
            self.at = found.end()
            follows = self.text[self.at : self.at + 1]
            if follows and (_continues_name(follows, first=False) or follows == "."):
                self.at = start
                raise self.error(f"found {self.seen()}, expected a number or a text in quotes")
            return Scalar(start, self.at, self.number(found))
        end = _identifier_end(self.text, start)
        word = self.text[start:end]
        if word in _LITERALS:
            self.at = end
            return Scalar(start, end, _LITERALS[word])
        hint = " (text needs quotes)" if word else ""
        raise self.error(f"found {self.seen()}, expected a value{hint}")

    def number(self, found: re.Match[str]) -> int | float:
        text = found[0]
        if len(text) > _MAX_DIGITS:
            raise self.error(f"a number of {len(text)} characters, expected at most {_MAX_DIGITS}", found.start())
        if found["word"]:
            return float(text.replace("Infinity", "inf"))
        if found["hex"]:
            return int(text, 16)
        return float(text) if any(mark in text for mark in ".eE") else int(text)
