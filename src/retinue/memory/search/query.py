"""Parsing a query: words, exact phrases, identifiers, dates, and character pairs for scripts without spaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date
from typing import TypeVar

from msgspec import Struct

from retinue.memory.search.words import ASKING_WORDS, STOP_WORDS, character_pairs, without_spaceless

T = TypeVar("T")

MAX_QUERY_CHARS = 4_000
MAX_WORDS = 48
MAX_EXACT = 12

_WORD = re.compile(r"[^\W_]+")
_QUOTED = re.compile(
    r"\"([^\"\n]{2,200})\"|„([^„“”\n]{2,200})[“”]|“([^„“”\n]{2,200})”|«([^«»\n]{2,200})»|「([^「」\n]{2,200})」|`([^`\n]{2,200})`"
)
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th|s|er)", re.IGNORECASE)
_TOKEN = re.compile(r"[^\s\"“”«»「」`,;!?()\[\]{}<>]+")
_LETTER = re.compile(r"[a-z]")
_DOTTED = re.compile(r"[\w-]+(?:\.[\w-]+)+")
_ISO_DATE = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_MONTHS = tuple(
    tuple(names.split())
    for names in (
        "january february march april may june july august september october november december",
        "januar februar märz april mai juni juli august september oktober november dezember",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    )
)
_MONTH_NUMBER = {name: number for names in _MONTHS for number, name in enumerate(names, start=1)} | {
    name[:3]: number for number, name in enumerate(_MONTHS[0], start=1)
}
_MONTH_NAME = "|".join(sorted(_MONTH_NUMBER, key=len, reverse=True))
_SPOKEN_DATES = (
    re.compile(
        rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th|er|\.)?\s+(?:of\s+|de\s+)?(?P<m>{_MONTH_NAME})\b,?\s*(?P<y>\d{{4}})?"
    ),
    re.compile(rf"\b(?P<m>{_MONTH_NAME})\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\b,?\s*(?P<y>\d{{4}})?"),
)


class MemoryQuery(Struct, frozen=True):
    """A parsed query. Words are in lower case; `exact` are phrases that must match exactly.

    `asking` are those words that describe the request and not its subject: they count little.
    """

    text: str
    words: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    asking: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.exact or self.pairs)


def parse_query(text: str) -> MemoryQuery:
    """Parse a query; stop words are kept only if nothing else is left."""
    # Lone surrogates, which a command line may contain, occur in no note.
    text = text[:MAX_QUERY_CHARS].encode("utf-8", "replace").decode()
    text = " ".join(text.replace("\0", " ").split())
    phrases = [next(filter(None, groups)) for groups in _QUOTED.findall(text)]
    spaced = without_spaceless(text)
    exact = [*phrases, *find_identifiers(spaced)]
    # Queries and notes may format a date differently, so other formats are searched for as well.
    spellings = " ".join(map(format_date, find_dates(spaced)))
    words = list(_distinct(_WORD.findall(f"{spaced} {spellings}".lower())))
    # A single letter is left over from an apostrophe, as in `l'été`.
    telling = [word for word in words if word not in STOP_WORDS and not _LETTER.fullmatch(word)]
    pairs = tuple(_distinct(character_pairs(text)))[:MAX_WORDS]
    kept = telling or ([] if pairs else words)
    asking = frozenset(kept) & ASKING_WORDS
    asking = asking if len(asking) < len(kept) else frozenset()
    return MemoryQuery(text, tuple(kept[:MAX_WORDS]), tuple(_distinct(exact))[:MAX_EXACT], pairs, asking)


def focus_text(query: MemoryQuery) -> str:
    """Return the text of a query without the words that describe the request.

    An average of word vectors would otherwise be as much about listing and summarising as about the subject.
    """
    if not query.asking:
        return query.text
    return " ".join(word for word in query.text.split() if word.strip(".,;:!?()'\"").lower() not in query.asking)


def find_identifiers(text: str) -> Iterator[str]:
    """Yield the identifiers in a text: codes, versions, paths, addresses, variables."""
    for found in _TOKEN.findall(text):
        token = found.strip(".:'’*_-")
        if is_identifier(token):
            yield token


def is_identifier(token: str) -> bool:
    """Return whether a token is an identifier, such as `ERR_TLS_42`, `10.0.0.7`, `main.py` or `parseConfig`."""
    parts = _WORD.findall(token)
    if not parts or len(token) < 3:
        return False
    has_digit = any(char.isdigit() for char in token)
    has_letter = any(char.isalpha() for char in token)
    joined = len(parts) > 1 and not {"'", "’"} & set(token)
    if joined and (has_digit or any(mark in token for mark in "_@/\\:#") or _DOTTED.fullmatch(token)):
        return True
    if has_digit:
        return not _ORDINAL.fullmatch(token) and (has_letter or len(token) >= 5)
    return token[1:] != token[1:].lower() and not token.isupper()


def find_dates(text: str) -> Iterator[date]:
    """Yield the dates in a text that include a year."""
    for year, month, day in _ISO_DATE.findall(text):
        yield from _valid(year, month, day)
    lowered = text.lower()
    for pattern in _SPOKEN_DATES:
        for found in pattern.finditer(lowered):
            if found["y"]:
                yield from _valid(found["y"], _MONTH_NUMBER[found["m"]], found["d"])


def _valid(year: str | int, month: str | int, day: str | int) -> Iterator[date]:
    try:
        yield date(int(year), int(month), int(day))
    except ValueError:
        return


def format_date(day: date) -> str:
    """Format a date in the ways that people write it."""
    return f"{day.isoformat()} {day.day} {_MONTHS[0][day.month - 1]} {day.year}"


def _distinct(items: Iterable[T]) -> Iterator[T]:
    return iter(dict.fromkeys(items))
