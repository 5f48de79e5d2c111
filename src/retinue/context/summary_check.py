"""Checking whether a summary may replace the messages it summarises.

Its identifiers, such as paths, addresses, ids, dates and amounts, must be copied exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from retinue.context.measure import authored_text, estimate
from retinue.core.messages import Message, UserMessage
from retinue.core.text import estimate_tokens, read_heading
from retinue.security.redaction import HIDDEN, Redact, Redactor

HEADINGS = ("Decisions", "Open tasks", "Constraints", "Pending asks", "Exact identifiers")
"""The required sections of a summary, in this order."""

_KNOWN_KEYS = Redactor()
_WORD = re.compile(r"(?<![^\W_])[^\W_]{4,40}(?![^\W_])")
_DENSE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_ASK_CHARS = 2_000
_ASK_SHARE = 0.25
_ASK_WORDS = 3


def check_summary(
    summary: str,
    messages: Sequence[Message],
    *,
    previous: str = "",
    asks: Sequence[str] | None = None,
    tokens_replaced: int | None = None,
    required: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Return the problems of a summary of `messages` and of the `previous` summary, as sentences.

    `messages` are as the writer of the summary read them. `asks` are the requests of people, by default the user
    messages; `tokens_replaced` is the exclusive maximum size, by default the size of `messages`; `required` are the
    identifiers that must be in the summary, by default the `required_identifiers`.
    """
    if tokens_replaced is None:
        tokens_replaced = estimate(messages) + estimate_tokens(previous)
    if asks is None:
        asks = [message.text for message in messages if isinstance(message, UserMessage)]
    if required is None:
        required = required_identifiers(messages, previous)
    return (
        *find_size_problems(summary, tokens_replaced),
        *_missing_headings(summary),
        *_missing_identifiers(summary, required),
        *_missing_ask(summary, asks),
    )


def find_size_problems(summary: str, most: int) -> tuple[str, ...]:
    """Return a problem if a summary is empty, or not below `most` tokens."""
    if not summary.strip():
        return ("The summary is empty.",)
    size = estimate_tokens(summary)
    if size >= most:
        return (f"The summary has about {size} tokens and must stay below {most}; make it shorter.",)
    return ()


def required_identifiers(
    messages: Sequence[Message], previous: str = "", *, redact: Redact = _KNOWN_KEYS
) -> tuple[str, ...]:
    """Return the identifiers that a summary must contain: of the messages first, then of the previous summary."""
    found = find_identifiers(map(authored_text, messages), redact=redact)
    older = (name for name in find_identifiers([previous], redact=redact) if not any(name in other for other in found))
    return (*found, *older)[:MAX_IDENTIFIERS]


def _missing_headings(summary: str) -> tuple[str, ...]:
    headings = filter(None, map(read_heading, summary.split("\n")))
    there = {words.rstrip(" \t#:*").strip("*_ ").casefold() for _, words in headings}
    return tuple(f"The heading '## {heading}' is missing." for heading in HEADINGS if heading.casefold() not in there)


def _missing_identifiers(summary: str, required: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        f"'{name}' does not appear, spelt exactly so." for name in required if not contains_identifier(summary, name)
    )


def _missing_ask(summary: str, asks: Sequence[str]) -> tuple[str, ...]:
    latest = next((ask for ask in reversed(asks) if _words(ask[:_ASK_CHARS])), None)
    if latest is None:
        return ()
    wanted = _words(latest[:_ASK_CHARS])
    needed = min(_ASK_WORDS, max(1, round(len(wanted) * _ASK_SHARE)))
    if len(wanted & _words(summary)) >= needed:
        return ()
    return (f"The latest request is not mentioned: {' '.join(latest.split())[:300]}",)


def _words(text: str) -> frozenset[str]:
    """Return the longer words of a text, and the character pairs of scripts without spaces."""
    dense = (run[at : at + 2] for run in _DENSE.findall(text) for at in range(len(run) - 1))
    return frozenset({word.casefold() for word in _WORD.findall(text)}.union(dense))


MAX_IDENTIFIERS = 12

_MAX_CHARS = 160
_CANDIDATES = 10
_SCANNED_CHARS = 20_000

_UNITS = (
    r"%|€|\$|£|ms|s|sec(?:onds?)?|min(?:utes?)?|h|hours?|days?|weeks?|months?|years?|[kmgt]i?b|bytes?|tokens?|chars?"
    r"|lines?|px|mm|cm|m|km|g|kg|°c|°f|hz|[kmg]hz|usd|eur|gbp|chf|euros?|dollars?"
)
_ENDINGS = r"py|js|ts|md|json5?|ya?ml|toml|txt|csv|pdf|sh|html|css|sql|rs|go|cpp|java|log|ini|cfg|png|jpg"
_NAME = r"[\w.@+-]{1,64}"
# Every repetition is bounded: the text may be anything, and scanning must stay linear.
_KINDS: tuple[tuple[str, int, str], ...] = (
    ("url", 6, r"https?://[^\s<>\"'`)\]}|\\]{1,200}"),
    ("uuid", 6, r"\b[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}\b"),
    ("quoted", 4, r"`[^`\n]{2,80}`"),
    ("absolute", 5, rf"(?<![\w/.])(?:~|\.{{1,2}})?/(?:{_NAME}/){{0,20}}{_NAME}"),
    ("relative", 5, rf"(?<![\w/.:@+-])(?:{_NAME}/){{1,20}}[\w.@+-]{{0,64}}\.\w{{1,8}}\b"),
    ("windows", 5, r"\b[A-Za-z]:\\[\w.\\-]{1,200}"),
    ("mail", 5, r"(?<![\w.+@-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,6}"),
    ("hash", 5, r"\b(?=[0-9a-f]{0,63}\d)(?=[0-9a-f]{0,63}[a-f])[0-9a-f]{7,64}\b"),
    ("date", 4, r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)?\b"),
    ("day", 4, r"\b\d{1,2}[./]\d{1,2}[./]\d{4}\b"),
    ("ticket", 4, r"\b[A-Z][A-Z0-9]{1,9}-\d{1,8}(?:[-/][A-Za-z0-9]{1,16}){0,6}\b|(?<!\w)#\d{1,8}\b"),
    ("id", 4, r"(?<![\w-])(?=[\w-]{0,40}\d)[A-Za-z]\w{0,31}(?:[_-][A-Za-z0-9]{1,32}){1,6}\b"),
    ("file", 3, rf"\b[\w-]{{1,64}}\.(?:{_ENDINGS})\b"),
    ("version", 3, r"\bv?\d{1,6}\.\d{1,6}\.\d{1,6}[\w.-]{0,20}"),
    ("measure", 2, rf"(?<![\w.,-])(?:[€$£]\s?)?\d[\d.,]{{0,20}}\s?(?i:{_UNITS})(?!\w)"),
    ("price", 2, r"[€$£]\s?\d[\d.,]{0,20}"),
)
_WEIGHTS = {name: weight for name, weight, _ in _KINDS}
_IDENTIFIER = re.compile("|".join(f"(?P<{name}>{shape})" for name, _, shape in _KINDS))


def find_identifiers(
    texts: Iterable[str], most: int = MAX_IDENTIFIERS, *, redact: Redact = _KNOWN_KEYS
) -> tuple[str, ...]:
    """Return the most important identifiers in `texts` (oldest first), by kind, frequency and recency.

    What `redact` recognises as a password or key is omitted, so that no summary must contain it.
    """
    scores: dict[str, float] = {}
    last: dict[str, int] = {}
    for at, text in enumerate(texts):
        for weight, identifier in _scan(redact(_excerpt(text))):
            scores[identifier] = scores.get(identifier, 0.0) + weight
            last[identifier] = at
    newest = max(last.values(), default=0) or 1

    def rank(identifier: str) -> tuple[float, int, str]:
        # An identifier in the newest text weighs three times one only in the oldest.
        return -scores[identifier] * (1 + 2 * last[identifier] / newest), -last[identifier], identifier

    # A part of another identifier is omitted: `app.toml` next to `/srv/app.toml` means the same.
    best = sorted(scores, key=rank)[: most * _CANDIDATES]
    whole = (name for name in best if not any(name != other and name in other for other in best))
    return tuple(islice(whole, most))


def contains_identifier(text: str, identifier: str) -> bool:
    """Return whether a text contains an identifier unchanged and not as part of a longer one, ignoring white space."""
    shape = r"\s*".join(map(re.escape, identifier.split()))
    before = r"(?<!\w)" if identifier[:1].isalnum() else ""
    after = r"(?!\w)" if identifier[-1:].isalnum() else ""
    return re.search(before + shape + after, text) is not None


def _excerpt(text: str) -> str:
    return text if len(text) <= 2 * _SCANNED_CHARS else f"{text[:_SCANNED_CHARS]}\n{text[-_SCANNED_CHARS:]}"


def _scan(text: str) -> Iterator[tuple[int, str]]:
    for match in _IDENTIFIER.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        found = match[0].strip("`").strip().rstrip(".,;:!?")
        if 2 <= len(found) <= _MAX_CHARS and HIDDEN.strip("[]") not in found:
            yield _WEIGHTS[kind], found
