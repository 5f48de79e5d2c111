"""Detection of prompt injection: the table of rules, disguises, hidden characters and encodings.

Detection only reports. It neither changes nor refuses a text, because no list of patterns is complete, and a text
about injections matches too.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from urllib.parse import unquote

from msgspec import Struct

from retinue.security.injection_rules import RULES, InjectionRule, RiskLevel
from retinue.security.untrusted_text import fold, literal

MAX_TEXT_CHARS = 200
MAX_FINDINGS = 1_000
"""Maximum number of findings in one text: further ones say nothing new."""


class Suspicion(Struct, frozen=True):
    """A place in a text that looks like an injection."""

    line: int
    rule: str
    severity: RiskLevel
    text: str


_DISGUISED = (
    r"(?:ignore|disregard|forget|override|bypass)(?:all|any)?(?:of)?(?:the|your|my|these)?"
    r"(?:previous|prior|above|earlier|preceding|existing|system|safety|your)(?:instruct|prompt|rule|guideline"
    r"|directive)"
)
_TAGS = "\U000e0020-\U000e007e"
_TAG_RUN = re.compile(f"[{_TAGS}]{{2,4096}}")
_FLAG = re.compile(f"\U0001f3f4[{_TAGS}]{{1,8}}\U000e007f")
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_ZERO_WIDTH = re.compile(
    "(?<=[A-Za-z])[\u200b-\u200d\u2060-\u2064\ufeff\u00ad\u180e](?=[A-Za-z])|[\u200b\u2060-\u2064\u200c\u200d]{3,4096}"
)
_VARIATION_RUN = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,4096}")
_HIDDEN_RULES = (
    ("hidden-tag-characters", RiskLevel.HIGH, _TAG_RUN),
    ("bidi-override", RiskLevel.MEDIUM, _BIDI),
    ("zero-width", RiskLevel.MEDIUM, _ZERO_WIDTH),
    ("hidden-variation-selectors", RiskLevel.HIGH, _VARIATION_RUN),
)

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,4096}={0,2}")
_HEX = re.compile(r"(?:(?:\\x|0x)?[0-9A-Fa-f]{2}[\x20,]{0,2}){16,2048}")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}|[A-Za-z0-9._~+-]){12,4096}")
_ENTITIES = re.compile(r"(?:&#x?[0-9A-Fa-f]{1,6};|\x20){8,2048}")
_ESCAPES = re.compile(r"(?:\\u[0-9A-Fa-f]{4}|\x20){8,2048}")


def _from_base64(found: str) -> str:
    plain = found.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    return base64.b64decode(plain[: len(plain) - (len(plain) % 4 == 1)] + "=" * (-len(plain) % 4)).decode()


def _from_hex(found: str) -> str:
    return bytes.fromhex(re.sub(r"\\x|0x|[\s,]", "", found)).decode()


def _from_escapes(found: str) -> str:
    return re.sub(r"\\u([0-9A-Fa-f]{4})", lambda code: chr(int(code[1], 16)), found)


_ENCODINGS: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = (
    (_BASE64, _from_base64),
    (_HEX, _from_hex),
    (_PERCENT, unquote),
    (_ENTITIES, html.unescape),
    (_ESCAPES, _from_escapes),
)
_LEET = str.maketrans("013457@$!|", "oieasta" + "sil")


@cache
def _detectors() -> tuple[tuple[InjectionRule, re.Pattern[str]], ...]:
    """Compile the patterns on first use: most processes never need them."""
    return tuple((rule, re.compile(rule.pattern.replace(" ", r"\s{1,9}"))) for rule in RULES)


@cache
def _disguised() -> re.Pattern[str]:
    return re.compile(_DISGUISED)


def find_injection_patterns(text: str) -> tuple[str, ...]:
    """Return the names of the rules that match the text; the text is not changed."""
    folded = fold(text)
    return tuple(rule.name for rule, pattern in _detectors() if pattern.search(folded))


def scan_text(text: str) -> tuple[Suspicion, ...]:
    """Return the suspicious places of a text in the order of its lines, each rule once per line."""
    lines = re.split("[\n\u2028\u2029]", text)
    found: dict[tuple[int, str], RiskLevel] = {}
    for line, rule, severity in _search(text):
        found.setdefault((line, rule), severity)
        if len(found) == MAX_FINDINGS:
            break
    return tuple(
        Suspicion(line + 1, rule, severity, literal(lines[line], MAX_TEXT_CHARS))
        for (line, rule), severity in sorted(found.items())
    )


def _search(text: str) -> Iterator[tuple[int, str, RiskLevel]]:
    folded = fold(text)
    starts = _line_starts(folded)
    plain: set[int] = set()
    for rule, pattern in _detectors():
        for match in pattern.finditer(folded):
            line = bisect_right(starts, match.start()) - 1
            plain.add(line)
            yield line, rule.name, rule.severity
    for line, disguise in _search_disguises(folded):
        if line not in plain:  # A line that is already reported is not disguised.
            yield line, disguise, RiskLevel.HIGH
    original = _line_starts(text := text.replace("\u2028", "\n").replace("\u2029", "\n"))
    visible = _FLAG.sub(lambda flag: " " * len(flag[0]), text)
    for name, severity, pattern in _HIDDEN_RULES:
        for match in pattern.finditer(visible):
            yield bisect_right(original, match.start()) - 1, name, severity
    for pattern, decode in _ENCODINGS:
        for match in pattern.finditer(text):
            if _hides_instructions(match[0], decode):
                yield bisect_right(original, match.start()) - 1, "encoded-payload", RiskLevel.HIGH


def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _search_disguises(folded: str) -> Iterator[tuple[int, str]]:
    """Search for an override with separated letters, digits for letters, reversed letters, or in ROT13."""
    pattern = _disguised()
    for number, line in enumerate(folded.split("\n")):
        squeezed = re.sub(r"[\W_]", "", line.translate(_LEET))
        for name, view in (
            ("spaced-override", squeezed),
            ("reversed-override", squeezed[::-1]),
            ("rot13-override", codecs.encode(squeezed, "rot13")),
        ):
            if pattern.search(view):
                yield number, name


def _hides_instructions(found: str, decode: Callable[[str], str]) -> bool:
    try:
        plain = decode(found)
    except (ValueError, binascii.Error, OverflowError):
        return False
    return plain != found and bool(find_injection_patterns(plain))
