"""Escape values that are inserted into the prompt.

A path, an id or a name is data. It must not contain invisible characters or line breaks, because then it could imitate
a part of the prompt.
"""

from __future__ import annotations

import re
import unicodedata

from retinue.security.untrusted_text import sanitise_line

MAX_LITERAL_CHARS = 500

_BREAKS = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029")
_UNSEEN = frozenset({"Cc", "Cf", "Cs"})
_LINE_BREAKS = re.compile("\r\n?|[\v\f\x85\u2028\u2029]")
_HIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f"
    "\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # zero width, direction, annotation
    "\ud800-\udfff\U000e0000-\U000e007f]"  # lone surrogates; tag characters, which only models can read
)

_UNSEEN_IN_NAMES = re.compile(f"{_HIDDEN.pattern}|[\t-\r\x85\u2028\u2029]")


def literal(text: str, max_chars: int = MAX_LITERAL_CHARS) -> str:
    """Return `text` as one visible line of at most `max_chars` characters; truncation is marked by an ellipsis."""
    if not text.isprintable():
        text = "".join(map(_visible, text))
    text = text.strip()
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def label(text: str, max_chars: int = MAX_LITERAL_CHARS) -> str:
    """Like `literal`, for an untrusted name: it cannot imitate a marker or a model's control token."""
    return sanitise_line(literal(text, max_chars))


def file_name(text: str) -> str:
    """Return a file name on one line, with invisible and line-breaking characters escaped.

    Nothing is removed, so two different names never look the same. Joiners are kept, as in `passage`.
    """
    return _UNSEEN_IN_NAMES.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


def passage(text: str) -> str:
    """Return a text of several lines without the characters that are invisible to people but readable by models.

    Joiners are kept, because emoji and many scripts need them.
    """
    return _HIDDEN.sub("", _LINE_BREAKS.sub("\n", text))


def xml(text: str) -> str:
    """Return `text` escaped for an XML element or attribute."""
    return (
        text.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&quot;")
        .replace("'", "&apos;")
    )


def _visible(char: str) -> str:
    if char in _BREAKS:
        return " "
    return "" if unicodedata.category(char) in _UNSEEN else char
