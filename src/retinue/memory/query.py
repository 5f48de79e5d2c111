"""What a question asks for: words, exact phrases, identifiers, dates, and pairs of characters where no spaces are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date
from typing import TypeVar

from msgspec import Struct

from retinue.memory.scripts import pair_up, without_spaceless
from retinue.memory.stopwords import STOP_WORDS

T = TypeVar("T")

LONGEST_QUERY = 4_000
MOST_WORDS = 48
MOST_EXACT = 12

_WORD = re.compile(r"[^\W_]+")
_QUOTED = re.compile(
    r"\"([^\"\n]{2,200})\"|„([^„“”\n]{2,200})[“”]|“([^„“”\n]{2,200})”|«([^«»\n]{2,200})»|「([^「」\n]{2,200})」|`([^`\n]{2,200})`"
)
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th|s|er)", re.IGNORECASE)
_TOKEN = re.compile(r"[^\s\"“”«»「」`,;!?()\[\]{}<>]+")
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


class Query(Struct, frozen=True):
    """A question taken apart. Words are in lower case; `exact` must stand in a text letter for letter."""

    text: str
    words: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.exact or self.pairs)


def parse_query(text: str) -> Query:
    """Take a question apart; stop words are kept only where nothing else is left."""
    # Half of a surrogate pair, as a command line may hold it, is in no note.
    text = text[:LONGEST_QUERY].encode("utf-8", "replace").decode()
    text = " ".join(text.replace("\0", " ").split())
    phrases = [next(filter(None, groups)) for groups in _QUOTED.findall(text)]
    spaced = without_spaceless(text)
    exact = [*phrases, *find_identifiers(spaced)]
    # A day is asked for in one spelling and written in another; both are looked for.
    spellings = " ".join(map(spell_date, find_dates(spaced)))
    words = list(_distinct(_WORD.findall(f"{spaced} {spellings}".lower())))
    telling = [word for word in words if word not in STOP_WORDS and not _is_elision(word)]
    pairs = tuple(_distinct(pair_up(text)))[:MOST_WORDS]
    kept = telling or ([] if pairs else words)
    return Query(text, tuple(kept[:MOST_WORDS]), tuple(_distinct(exact))[:MOST_EXACT], pairs)


def find_identifiers(text: str) -> Iterator[str]:
    """Names that only machines make up: codes, versions, paths, addresses, variables."""
    for found in _TOKEN.findall(text):
        token = found.strip(".:'’*_-")
        if is_identifier(token):
            yield token


def is_identifier(token: str) -> bool:
    """Whether a token means itself and nothing else, as `ERR_TLS_42`, `10.0.0.7`, `main.py` or `parseConfig` do."""
    parts = _WORD.findall(token)
    if not parts or len(token) < 3:
        return False
    has_digit = any(char.isdigit() for char in token)
    has_letter = any(char.isalpha() for char in token)
    joined = len(parts) > 1 and not {"'", "’"} & set(token)
    if joined and (has_digit or any(mark in token for mark in "_@/\\:#") or _is_dotted(token)):
        return True
    if has_digit:
        return not _ORDINAL.fullmatch(token) and (has_letter or len(token) >= 5)
    return token[1:] != token[1:].lower() and not token.isupper()


def _is_dotted(token: str) -> bool:
    return bool(re.fullmatch(r"[\w-]+(?:\.[\w-]+)+", token))


def _is_elision(word: str) -> bool:
    """A single letter left over from an apostrophe; a digit is not one."""
    return len(word) == 1 and word.isalpha() and word.isascii()


def find_dates(text: str) -> Iterator[date]:
    """The days that a text names with their year."""
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


def spell_date(day: date) -> str:
    """A day in the words that people ask for it with."""
    return f"{day.isoformat()} {day.day} {_MONTHS[0][day.month - 1]} {day.year}"


def _distinct(items: Iterable[T]) -> Iterator[T]:
    return iter(dict.fromkeys(items))
