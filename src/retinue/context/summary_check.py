"""Checking whether a summary may replace the messages it summarises."""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.context.identifiers import MAX_IDENTIFIERS, contains_identifier, find_identifiers
from retinue.context.measure import authored_text, estimate
from retinue.core.markdown import read_heading
from retinue.core.messages import Message, UserMessage
from retinue.core.tokens import estimate_tokens
from retinue.security.redaction import Redact, Redactor

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
    redact: Redact = _KNOWN_KEYS,
    identifiers: bool = True,
) -> tuple[str, ...]:
    """Return the problems of a summary of `messages` and of the `previous` summary, as sentences.

    `messages` are as the writer of the summary read them. `asks` are the requests of people, by default the user
    messages; `tokens_replaced` is the exclusive maximum size, by default the size of `messages`; `identifiers` says
    whether identifiers are checked.
    """
    if tokens_replaced is None:
        tokens_replaced = estimate(messages) + estimate_tokens(previous)
    if asks is None:
        asks = [message.text for message in messages if isinstance(message, UserMessage)]
    required = required_identifiers(messages, previous, redact=redact) if identifiers else ()
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
