"""Silence tokens: texts with which a model says that nothing should be sent."""

from __future__ import annotations

import json
import re
from functools import cache

SILENT = "NO_REPLY"
REPLY_SKIP = "REPLY_SKIP"
"""As a whole answer it is equivalent to `NO_REPLY`; a session ends an exchange with another session with it."""
ANNOUNCE_SKIP = "ANNOUNCE_SKIP"
"""As a whole answer of a sub-agent it means that the parent needs no message."""
HEARTBEAT_OK = "HEARTBEAT_OK"
ACK_MAX_CHARS = 300

_SENTENCE_MAX_CHARS = 200
_OPENERS = (
    "i'll stay silent",
    "i'll stay quiet",
    "i'll remain silent",
    "i'll keep quiet",
    "i will stay silent",
    "i will remain silent",
    "i should stay silent",
    "staying silent",
    "staying quiet",
    "no reply needed",
    "no reply is needed",
    "no response needed",
    "nothing to say",
)
_WHOLE = (SILENT, REPLY_SKIP)
"""Whole answers that mean silence."""

_GLUED = re.compile(rf"(?:{SILENT}\s*)*{SILENT}(?=[^\W_])")
_OWN_LINE = re.compile(rf"(?:{SILENT}\s*)*{SILENT}[ \t]*\n\s*", re.IGNORECASE)

_WRAPPING = " \t\r\n*_`~\u00a0"
_TAG_FIRST = re.compile(r"<[^<>]{0,200}>|&nbsp;")


def is_silent(text: str, *, reasoned: bool = False, tokens: tuple[str, ...] = _WHOLE) -> bool:
    """Return whether a whole answer means silence.

    It does if it is only a token, once or repeated, in any case, bare or as one of two JSON forms. After reasoning, a
    short sentence about staying silent may precede the token.
    """
    text = text.strip()
    if any(_run_of(token).fullmatch(text) for token in tokens):
        return True
    if text.startswith(('"', "{")):
        return any(_is_silent_json(text, token) for token in tokens)
    is_short = len(text) <= _SENTENCE_MAX_CHARS
    return reasoned and is_short and _plain(text).startswith(_OPENERS) and text.endswith(tokens)


def may_become_silent(text: str, *, reasoned: bool = False) -> bool:
    """Return whether this beginning of an answer could still become a silent one."""
    text = text.lstrip()
    for token in _WHOLE:
        run = _run_of(token).match(text)
        if token.startswith(text[run.end() if run else 0 :].upper()):
            return True
    if len(text.rstrip()) > _SENTENCE_MAX_CHARS:
        return False
    squeezed = _squeeze(text)
    forms = (form for token in _WHOLE for form in _json_forms(token))
    if any(form.startswith(squeezed) for form in forms):
        return True
    plain = _plain(text)
    return reasoned and any(opener.startswith(plain) or plain.startswith(opener) for opener in _OPENERS)


def strip_leading_token(text: str) -> str:
    """Return an answer without leading tokens on a line of their own or joined to its first word."""
    text = text.lstrip()
    found = _GLUED.match(text) or _OWN_LINE.match(text)
    return text[found.end() :] if found else text


def strip_trailing_token(text: str) -> str:
    """Return an answer without trailing tokens and white space; a token counts only after white space."""
    text = text.rstrip()
    while text.endswith(SILENT) and text[: -len(SILENT)][-1:].isspace():
        text = text[: -len(SILENT)].rstrip()
    return text


def split_safe(text: str) -> tuple[str, str]:
    """Return the text that may be shown now, and the end that could still become a trailing token."""
    head = text.rstrip()
    end = len(head)
    if end == len(text):
        end = _before_word(head, unfinished=True)
    while (before := _before_word(text[:end], unfinished=False)) < end:
        end = before
    return text[:end], text[end:]


def strip_heartbeat(text: str, ack_max_chars: int = ACK_MAX_CHARS) -> str:
    """Return a heartbeat's answer without its token; empty if it is only an acknowledgement.

    The token counts only at the start or the end. Up to `ack_max_chars` of other text are ignored; more is a report.
    """
    rest = _strip_last_ack(_strip_first_ack(text))
    if rest == text:
        return text
    rest = rest.strip()
    return "" if len(rest) <= ack_max_chars else rest


def _before_word(text: str, *, unfinished: bool) -> int:
    """Return where the white space before the last word begins, if that word is the token (or a beginning of it)."""
    end = text[-len(SILENT) - 1 :]  # a longer word is not the token
    word = end.split()[-1] if end and not end[-1].isspace() else ""
    fits = SILENT.startswith(word) if unfinished else word == SILENT
    return len(text[: -len(word)].rstrip()) if word and fits and word != text else len(text)


def _strip_first_ack(text: str) -> str:
    rest = _unwrap_first(text)
    if not rest.startswith(HEARTBEAT_OK) or rest[len(HEARTBEAT_OK) :][:1].isalnum():
        return text
    return _unwrap_first(_unwrap_first(rest[len(HEARTBEAT_OK) :]).lstrip(".,:;!–—-"))


def _strip_last_ack(text: str) -> str:
    rest = _unwrap_last(_unwrap_last(text).rstrip(".!"))
    if not rest.endswith(HEARTBEAT_OK) or rest[: -len(HEARTBEAT_OK)][-1:].isalnum():
        return text
    return _unwrap_last(rest[: -len(HEARTBEAT_OK)])


def _unwrap_first(text: str) -> str:
    """Return the text without leading emphasis, HTML tags and white space."""
    text = text.lstrip(_WRAPPING)
    while found := _TAG_FIRST.match(text):
        text = text[found.end() :].lstrip(_WRAPPING)
    return text


def _unwrap_last(text: str) -> str:
    text = text.rstrip(_WRAPPING)
    while text.endswith((">", "&nbsp;")):
        start = text.rfind("&nbsp;" if text.endswith("&nbsp;") else "<")
        if start < 0 or not _TAG_FIRST.fullmatch(text, start):
            break
        text = text[:start].rstrip(_WRAPPING)
    return text


def _squeeze(text: str) -> str:
    return "".join(text.split()).upper()


@cache
def _run_of(token: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{token}\s*)+", re.IGNORECASE)


def _json_forms(token: str) -> tuple[str, str]:
    return f'"{token}"', f'{{"ACTION":"{token}"}}'


def _is_silent_json(text: str, token: str) -> bool:
    if len(text) > _SENTENCE_MAX_CHARS or _squeeze(text) not in _json_forms(token):
        return False
    try:
        value = json.loads(text)
    except ValueError:
        return False
    name = value.get("action") if isinstance(value, dict) else value
    return isinstance(name, str) and name.strip().upper() == token


def _plain(text: str) -> str:
    return text.lower().replace("’", "'")
