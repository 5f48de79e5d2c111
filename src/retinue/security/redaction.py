"""Redaction of secrets: by exact value in common encodings, and by patterns of well-known keys.

A `Redactor` knows the values of one part of the program. Logs and terminals must not show a value that any part of the
process knows, so `redact_everything` applies all redactors.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import Any
from urllib.parse import quote, quote_plus, unquote
from weakref import WeakSet

from msgspec import Struct

from retinue.core.errors import ConfigError

HIDDEN = "[redacted]"
MIN_SECRET_CHARS = 6
MAX_PATTERN_CHARS = 500

Redact = Callable[[str], str]

_SHAPES: tuple[str, ...] = (
    r"sk-(?:ant-|proj-|or-v1-|svcacct-)?[A-Za-z0-9_-]{16,}",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"(?:gsk|xai|hf|npm|pplx|tvly|r8|nvapi)[_-][A-Za-z0-9_-]{16,}",
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{22,}",
    r"glpat-[A-Za-z0-9_-]{20,}",
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"xapp-[A-Za-z0-9-]{10,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"\b\d{8,10}:[A-Za-z0-9_-]{35}\b",
    # bounded, because every start within such a run is tried: otherwise a crafted text costs quadratic time
    r"(?:(?<![\w-])eyJ[\w-]{10,}+|(?<=-)eyJ[\w-]{10,1000}+)\.[\w-]{10,}+\.[\w-]{10,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"(?<=Bearer )[A-Za-z0-9._~+/=-]{16,}",
    r"(?<=Basic )[A-Za-z0-9+/_-]{12,}={0,2}",
    r"(?<=[?&]key=)[^\s&\"'#]{8,}",
    r"(?<=[?&]sig=)[^\s&\"'#]{8,}",
    r"(?<=token=)[^\s&\"'#]{8,}",
    r"(?<=password=)[^\s&\"'#]{6,}",
    r"(?<=secret=)[^\s&\"'#]{8,}",
    r"(?<=api_key=)[^\s&\"'#]{8,}",
    r"(?<=apikey=)[^\s&\"'#]{8,}",
    r"(?<=://)[^\s/:@\"']*:[^\s/@\"']+(?=@)",
    # the formats of an environment dump and of a JSON object
    r"(?<=API_KEY=)\S{8,}",
    r"(?<=_TOKEN=)\S{8,}",
    r"(?<=_SECRET=)\S{8,}",
    r"(?<=PASSWORD=)\S{6,}",
    r"(?<=\"apiKey\": \")[^\"]{8,}",
    r"(?<=\"api_key\": \")[^\"]{8,}",
    r"(?<=\"password\": \")[^\"]{6,}",
    r"(?<=\"access_token\": \")[^\"]{8,}",
    r"(?<=\"refresh_token\": \")[^\"]{8,}",
)
_KNOWN_SHAPES = re.compile("|".join(f"(?:{shape})" for shape in _SHAPES), re.DOTALL)
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
_PLAIN_RUN = re.compile(r"[A-Za-z0-9]+")
_MIN_CODE_CHARS = 8
_MIN_LINE_CHARS = 20


class _Known(Struct, frozen=True):
    """A secret prepared for the search: `probe` occurs unchanged in each of the `spellings`, but not in `codes`."""

    probe: str
    spellings: tuple[str, ...]
    codes: tuple[str, ...]

    def found_in(self, text: str) -> Iterator[str]:
        if self.probe in text:
            yield from (spelling for spelling in self.spellings if spelling in text)
        yield from (code for code in self.codes if code in text)


class Redactor:
    """Removes secrets from text: the registered values, and anything that matches the pattern of a well-known key.

    Values are also found as JSON, Python, shells, HTML and URLs encode them, and in base64 and hexadecimal.
    """

    def __init__(self, values: Iterable[str] = (), *, patterns: Iterable[str] = (), shapes: bool = True) -> None:
        self._known: dict[str, _Known] = {}
        self.shapes = shapes
        self._patterns = tuple(map(compile_pattern, patterns))
        if self._patterns or not shapes:
            self._announce()
        for value in values:
            self.hide(value)

    def hide(self, value: str) -> None:
        """Redact `value` from now on. Very short values are ignored: they would remove ordinary words."""
        value = value.strip()
        if len(value) < MIN_SECRET_CHARS or value in self._known:
            return
        if not self._known:
            self._announce()
        # A new dictionary: another thread may be searching the old one.
        self._known = {**self._known, value: _prepare(value)}
        lines = value.splitlines()
        if len(lines) > 1:
            for line in lines:
                if len(line.strip()) >= _MIN_LINE_CHARS:
                    self.hide(line)

    def is_in(self, text: str) -> bool:
        """Return whether the text contains a registered value."""
        return any(True for known in self._known.values() for _ in known.found_in(text))

    def hide_exact(self, text: str) -> str:
        """Return the text without registered values; pattern matches are kept."""
        found = [spelling for known in self._known.values() for spelling in known.found_in(text)]
        for spelling in sorted(found, key=len, reverse=True):
            text = text.replace(spelling, HIDDEN)
        return text

    def redact(self, text: str) -> str:
        """Return the text without registered values and without pattern matches."""
        text = self.hide_known(text)
        return _KNOWN_SHAPES.sub(HIDDEN, text) if self.shapes else text

    def hide_known(self, text: str) -> str:
        """Return the text without registered values and without matches of the operator's patterns."""
        text = self.hide_exact(text)
        for pattern in self._patterns:
            text = pattern.sub(_hide_group, text)
        return text

    def __call__(self, text: str) -> str:
        return self.redact(text)

    def _announce(self) -> None:
        with _lock:
            _live.add(self)


def _hide_group(match: re.Match[str]) -> str:
    """Redact a match of an operator's pattern: its first group if it has one, else all of it."""
    if not match.re.groups or match[1] is None:
        return HIDDEN
    start, end = match.start(1) - match.start(), match.end(1) - match.start()
    return match[0][:start] + HIDDEN + match[0][end:]


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile an operator's pattern of secrets; `/…/flags` is supported too."""
    body, flags = text, 0
    slashed = re.fullmatch(r"/(.+)/([gimsuy]*)", text, re.DOTALL)
    if slashed:
        body = slashed[1]
        flags = (re.IGNORECASE if "i" in slashed[2] else 0) | (re.DOTALL if "s" in slashed[2] else 0)
    try:
        if len(body) > MAX_PATTERN_CHARS:
            raise ConfigError(
                f"A redaction pattern may have at most {MAX_PATTERN_CHARS} characters; this one has {len(body)}."
            )
        return re.compile(body, flags)
    except re.error as error:
        raise ConfigError(
            f"'{text}' is not a valid regular expression: {error}. Correct `logging.redactPatterns`."
        ) from None


_live: WeakSet[Redactor] = WeakSet()
_lock = Lock()


def redact_everything(text: str) -> str:
    """Return the text without any secret known to this process, and without pattern matches.

    If the operator disabled patterns, only known secrets are removed.
    """
    with _lock:
        redactors = list(_live)
    for redactor in redactors:
        text = redactor.hide_known(text)
    return _KNOWN_SHAPES.sub(HIDDEN, text) if all(redactor.shapes for redactor in redactors) else text


def redact_data(data: Any, redact: Redact = redact_everything) -> Any:
    """Return plain data with all texts in it redacted, including keys."""
    if isinstance(data, str):
        return redact(data)
    if isinstance(data, dict):
        return {redact_data(name, redact): redact_data(value, redact) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [redact_data(item, redact) for item in data]
    return data


def texts_in_data(data: Any) -> Iterator[str]:
    """Yield every text that `redact_data` checks."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for name, value in data.items():
            yield from texts_in_data(name)
            yield from texts_in_data(value)
    elif isinstance(data, (list, tuple)):
        for item in data:
            yield from texts_in_data(item)


class RedactingFormatter(logging.Formatter):
    """Formats a record with its traceback, then removes every secret that the process knows."""

    def format(self, record: logging.LogRecord) -> str:
        return redact_everything(super().format(record))


def _prepare(value: str) -> _Known:
    spellings = tuple(_quoted_forms(value))
    runs = sorted(_PLAIN_RUN.findall(value), key=len, reverse=True)
    probe = next((run for run in runs if all(run in spelling for spelling in spellings)), "")
    return _Known(probe, spellings, tuple(_encode(value)))


def _quoted_forms(value: str) -> Iterable[str]:
    """Return the value as it is, and as quoting formats encode it; letters and digits are unchanged."""
    found = dict.fromkeys([value, unquote(value)] if "%" in value else [value])
    for plain in tuple(found):
        escaped = json.dumps(plain)[1:-1]
        url = quote(plain, safe="")
        ways = [escaped, json.dumps(escaped)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1], repr(plain)[1:-1]]
        ways += [url, quote(plain), quote_plus(plain), _lower_hex(url), _lower_hex(quote(plain))]
        ways += [plain.replace("/", "\\/"), escaped.replace("/", "\\/"), plain.translate(_HTML)]
        ways += [shlex.quote(plain).strip("'")]
        found.update(dict.fromkeys(ways))
    return sorted((spelling for spelling in found if len(spelling) >= MIN_SECRET_CHARS), key=len, reverse=True)


def _lower_hex(text: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), text)


def _encode(value: str) -> Iterable[str]:
    """Return the value in base64, at each of the three alignments, and in hexadecimal."""
    data = value.encode("utf-8", "surrogatepass")
    codes = {data.hex(): None, data.hex().upper(): None}
    for lead, lost in ((0, 0), (1, 2), (2, 3)):
        whole = base64.b64encode(bytes(lead) + data).decode().rstrip("=")
        # The characters at both ends also encode bits of the neighbours.
        core = whole[lost:] if (lead + len(data)) % 3 == 0 else whole[lost:-1]
        codes[core] = None
        codes[core.replace("+", "-").replace("/", "_")] = None
    return (code for code in codes if len(code) >= _MIN_CODE_CHARS)
