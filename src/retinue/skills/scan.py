"""A static scan of skills for what attacks look like, before the owner decides about them.

The rules for prompt injection are applied to texts; further rules are about what skills add: scripts, prerequisites and
requests for secrets. A scan only reports: no list of patterns is complete, and skills about security match as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from msgspec import Struct

from retinue.security.injection import MAX_TEXT_CHARS, scan_text
from retinue.security.injection_rules import RiskLevel
from retinue.security.untrusted_text import literal
from retinue.skills.integrity.contents import SkillContent
from retinue.skills.scan_payloads import find_payloads
from retinue.skills.scan_rules import (
    CODE_RULES,
    COMBINATIONS,
    IN_CODE,
    TEXT_RULES,
    SkillRule,
    is_known_installer,
    is_plain_picture,
)

MAX_FINDINGS = 200
MAX_SCANNED_CHARS = 2_000_000
NEAR_LINES = 20
MAX_JOINED = 100
"""How many lines are read as one."""
_SPLIT_WORD = re.compile(r"(?<=[a-z])(?:''|\"\"|\\)(?=[a-z])")
_PROSE = (".md", ".txt", ".rst", ".mdx", ".markdown")
_DOWNLOADS = frozenset(("download-and-run", "runs-download", "download-then-run"))
_IMAGE = "image-exfiltration"
_ORDER = (RiskLevel.HIGH, RiskLevel.MEDIUM)
_PROGRAMS = (
    (b"\x7fELF", "compiled-program"),
    (b"MZ", "compiled-program"),
    (b"\xcf\xfa\xed\xfe", "compiled-program"),
    (b"\xca\xfe\xba\xbe", "compiled-program"),
)
_ENCRYPTED_ZIP = re.compile(rb"PK\x03\x04..[\x01\x03\x05\x07\x09\x0b\x0d\x0f]", re.DOTALL)
_ARCHIVES = (b"PK\x03\x04", b"Rar!", b"7z\xbc\xaf\x27\x1c", b"\x1f\x8b", b"BZh", b"\xfd7zXZ")


class SkillFinding(Struct, frozen=True):
    """A place in a skill that looks like an attack."""

    file: str
    line: int
    rule: str
    severity: RiskLevel
    text: str = ""


def scan_files(files: Mapping[str, SkillContent]) -> tuple[SkillFinding, ...]:
    """Return the findings in all files, the most severe first; each rule once per line."""
    found: dict[tuple[str, int, str], SkillFinding] = {}
    for name, file in files.items():
        for finding in _scan_file(name, file.data):
            found.setdefault((finding.file, finding.line, finding.rule), finding)
    ordered = sorted(found.values(), key=lambda each: (_ORDER.index(each.severity), each.file, each.line, each.rule))
    return tuple(ordered[:MAX_FINDINGS])


def _scan_file(name: str, data: bytes) -> Iterator[SkillFinding]:
    text = _decode(data)
    if text is None:
        yield from _scan_binary(name, data)
        return
    text = text[:MAX_SCANNED_CHARS]
    prose = name.lower().endswith(_PROSE)
    lines, plain = text.split("\n"), _join_lines(text)
    suspicions = (*scan_text(text), *(scan_text(plain) if plain != text else ()))
    found = [(each.line, each.rule, each.severity) for each in suspicions if prose or each.rule in IN_CODE]
    for line, rule, severity in (*found, *_search(plain, prose=prose)):
        shown = lines[line - 1] if line <= len(lines) else ""
        lowered = (rule in _DOWNLOADS and is_known_installer(shown)) or (rule == _IMAGE and is_plain_picture(shown))
        level = RiskLevel.MEDIUM if lowered and severity is RiskLevel.HIGH else severity
        yield SkillFinding(name, line, rule, level, literal(shown.strip(), MAX_TEXT_CHARS))


def _search(plain: str, *, prose: bool) -> Iterator[tuple[int, str, RiskLevel]]:
    rules = (*TEXT_RULES, *CODE_RULES) if prose else CODE_RULES
    lines: dict[str, list[int]] = {}
    for rule in rules:
        for match in _compile(rule).finditer(plain):
            line = plain.count("\n", 0, match.start()) + 1
            lines.setdefault(rule.name, []).append(line)
            yield line, rule.name, rule.severity
    for combination in COMBINATIONS:
        first, second = ([line for name in names for line in lines.get(name, ())] for names in combination.rules)
        # In a text, a path and an address that are far apart belong to different instructions.
        together = [line for line in first if any(not prose or abs(line - other) <= NEAR_LINES for other in second)]
        yield from ((line, combination.name, RiskLevel.HIGH) for line in together[:1])
    for start, kind in find_payloads(plain):
        yield plain.count("\n", 0, start) + 1, kind, RiskLevel.HIGH


def _join_lines(text: str) -> str:
    """Join lines that a backslash continues, keeping the number of lines, and remove quotes inside words.

    A shell ignores both, so `cu""rl` runs `curl`.
    """
    joined: list[str] = []
    pending: list[str] = []
    for line in text.split("\n"):
        kept = line.rstrip("\r")
        pending.append(kept.removesuffix("\\"))
        if not kept.endswith("\\") or len(pending) == MAX_JOINED:
            joined += (" ".join(pending), *[""] * (len(pending) - 1))
            pending = []
    return _SPLIT_WORD.sub("", "\n".join((*joined, *pending)))


@cache
def _compile(rule: SkillRule) -> re.Pattern[str]:
    return re.compile(rule.pattern, re.IGNORECASE)


def _scan_binary(name: str, data: bytes) -> Iterator[SkillFinding]:
    for magic, rule in _PROGRAMS:
        if data.startswith(magic):
            yield SkillFinding(name, 1, rule, RiskLevel.HIGH)
    if _ENCRYPTED_ZIP.match(data[:7]):
        yield SkillFinding(name, 1, "encrypted-archive", RiskLevel.HIGH)
    elif data.startswith(_ARCHIVES):
        yield SkillFinding(name, 1, "archive-inside", RiskLevel.MEDIUM)
    if name.endswith((".pyc", ".pyo", ".class", ".so", ".dylib")):
        yield SkillFinding(name, 1, "compiled-code", RiskLevel.MEDIUM)


def _decode(data: bytes) -> str | None:
    try:
        return None if b"\0" in data[:8_192] else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
