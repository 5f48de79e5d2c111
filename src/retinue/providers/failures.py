"""Classification of failed model calls: a table from status codes and texts to `Failure`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from msgspec import Struct

from retinue.core.errors import ModelError
from retinue.core.model import Failure
from retinue.security.redaction import Redactor

MAX_DETAIL_CHARS = 600
MAX_READ_CHARS = 8_000
"""Only this much of an error message is searched, because patterns are slow on long texts."""
MAX_RETRY_AFTER_SECONDS = 3600.0


class CallFailed(ModelError):
    """Ends a call inside an adapter; it becomes the stream's `ModelFailed` event."""

    def __init__(self, reason: Failure, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.retry_after = retry_after


class FailureSign(Struct, frozen=True):
    """A failure is recognised by its status, by its text, or by both if both are given."""

    reason: Failure
    statuses: frozenset[int] = frozenset()
    words: str | None = None
    """A pattern, compiled only when a failure is classified."""

    def fits(self, status: int | None, text: str) -> bool:
        if self.statuses and status not in self.statuses:
            return False
        return self.words is None or re.search(self.words, text, re.IGNORECASE) is not None


def _any_of(*alternatives: str) -> str:
    return "|".join(alternatives)


def _statuses(*codes: int) -> frozenset[int]:
    return frozenset(codes)


# The first matching sign applies. Texts precede status codes because several providers answer 400 to everything,
# and a rate limit counted in tokens must not be classified as a prompt that is too long.
SIGNS: tuple[FailureSign, ...] = (
    FailureSign(
        Failure.BILLING,
        words=_any_of(
            r"insufficient[_ ]quota",
            r"credit balance",
            r"insufficient (?:credits?|balance|funds)",
            r"billing[_ ](?:hard[_ ]limit|not[_ ]active|error)",
            r"exceeded your current quota",
            r"payment required",
        ),
    ),
    FailureSign(Failure.BILLING, _statuses(402)),
    FailureSign(Failure.RATE_LIMIT, _statuses(429)),
    FailureSign(
        Failure.OVERFLOW,
        words=_any_of(
            r"context[_ ]length",
            r"context[_ ]window",
            r"maximum context",
            r"exceeds? the (?:available )?context size",
            r"exceed_context_size",
            r"(?:prompt|input|request|message)s? (?:is|are) too long",
            r"input token count .*exceeds",
            r"maximum (?:prompt|input) length",
            r"reduce the length of the (?:messages|prompt|input)",
            r"request_too_large",
            r"too many (?:input )?tokens",
            r"token limit (?:exceeded|reached)",
        ),
    ),
    FailureSign(Failure.OVERFLOW, _statuses(413)),
    FailureSign(
        Failure.AUTH,
        words=_any_of(
            r"invalid[_ ]api[_ ]key",
            r"incorrect api key",
            r"api key (?:not valid|not found|expired)",
            r"invalid (?:x-api-key|bearer token|authentication)",
            r"authentication[_ ]?error",
            r"unauthenticated",
            r"permission[_ ](?:error|denied)",
            r"token (?:has )?expired",
        ),
    ),
    FailureSign(Failure.AUTH, _statuses(401, 403)),
    FailureSign(
        Failure.OVERLOADED, words=_any_of(r"overloaded", r"at capacity", r"currently experiencing high demand")
    ),
    FailureSign(Failure.OVERLOADED, _statuses(503, 529)),
    FailureSign(Failure.RATE_LIMIT, words=_any_of(r"rate[_ ]limit", r"too many requests", r"resource[_ ]exhausted")),
    FailureSign(
        Failure.NOT_FOUND,
        words=_any_of(
            r"model[_ ]not[_ ]found",
            r"invalid model name",
            r"not_found_error",
            r"model .{0,120}(?:does not exist|not found|is not supported)",
        ),
    ),
    FailureSign(Failure.NOT_FOUND, _statuses(404, 405, 410)),
    FailureSign(Failure.TIMEOUT, _statuses(408, 504, 524)),
    FailureSign(Failure.TIMEOUT, words=_any_of(r"deadline[_ ]exceeded", r"timed? ?out")),
    FailureSign(Failure.SERVER, frozenset(range(500, 600))),
    FailureSign(Failure.SERVER, words=_any_of(r"internal[_ ](?:server[_ ])?error", r"api_error", r"server_error")),
    FailureSign(Failure.FORMAT, frozenset(range(400, 500))),
    FailureSign(Failure.FORMAT, words=_any_of(r"invalid[_ ]request", r"invalid_argument", r"bad request")),
)


def classify(status: int | None, text: str) -> Failure:
    """Return the kind of a failure that an endpoint reported; `status` is None for an error inside a stream."""
    return next((sign.reason for sign in SIGNS if sign.fits(status, text)), Failure.UNKNOWN)


def failure_from_response(
    status: int | None, body: str, headers: Mapping[str, str] | None = None, *, secret: str | None = None
) -> CallFailed:
    """Return the failure of an error response; its detail is safe to show."""
    message, body = _message_of(body), body[:MAX_READ_CHARS]
    detail = f"{status}: {message}" if status is not None else message
    hidden = Redactor([secret] if secret else []).redact(detail)
    short = hidden if len(hidden) <= MAX_DETAIL_CHARS else hidden[: MAX_DETAIL_CHARS - 1] + "…"
    return CallFailed(classify(status, body), short, retry_after(headers or {}, body))


def _message_of(body: str) -> str:
    """Return the message in an error body: most providers put it under `error.message`."""
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return _plain(body)
    if isinstance(found, list) and found:
        found = found[0]
    for name in ("error", "message", "detail"):
        inner = found.get(name) if isinstance(found, dict) else None
        if isinstance(inner, dict):
            found = inner
        elif isinstance(inner, str) and inner.strip():
            return _plain(inner)
    return _plain(body)


def _plain(body: str) -> str:
    """Return a body of unknown structure on one line; for an HTML page, its title."""
    body = body[:MAX_READ_CHARS]
    if _PAGE.match(body):
        from html import unescape

        title = _TITLE.search(body)
        body = unescape(title[1] if title and title[1].strip() else _TAG.sub(" ", body))
    return " ".join(body.split()) or "no details were given"


_PAGE = re.compile(r"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>([^<]*)</title>", re.IGNORECASE)
_TAG = re.compile(r"<(style|script)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')


def retry_after(headers: Mapping[str, str], body: str = "") -> float | None:
    """Return the delay that the endpoint asks for, in seconds."""
    lowered = {name.lower(): value for name, value in headers.items()}
    seconds = _number(lowered.get("retry-after-ms"), 0.001) or _number(lowered.get("retry-after"), 1.0)
    if seconds is None and "retry-after" in lowered:
        seconds = _until_date(lowered["retry-after"], lowered.get("date"))
    if seconds is None and (found := _RETRY_DELAY.search(body)):
        seconds = float(found[1])
    return None if seconds is None else min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _number(text: str | None, scale: float) -> float | None:
    try:
        number = float(text) * scale if text is not None else None
    except ValueError:
        return None
    return None if number is None or math.isnan(number) else number


def _until_date(then: str, now: str | None) -> float | None:
    """Return the seconds between two HTTP dates, relative to the server's `Date`, so the local clock is not used."""
    try:
        return (parsedate_to_datetime(then) - parsedate_to_datetime(now or "")).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
