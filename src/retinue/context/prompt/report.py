"""Prompt reports: the sizes of sections, files, skills and tools, and what invalidated the provider's cache.

A report is made from the records of a prompt, so it describes exactly what was sent.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from retinue.context.prompt.build import PromptPart, SectionRecord, SystemPrompt, TurnBlock
from retinue.core.model import ToolSpec
from retinue.core.text import estimate_tokens

_SKILL = re.compile(r"<skill>.*?<name>(.*?)</name>.*?</skill>", re.DOTALL)
_BUNDLED = re.compile(r"^<bundled [^>]*>\n(.*?)^</bundled>$", re.DOTALL | re.MULTILINE)
_HASH_DIGITS = 16


class PromptTotal(Struct, frozen=True):
    """The size of the prompt without tool schemas."""

    chars: int
    tokens: int


class SectionSize(Struct, frozen=True):
    """One section of the prompt."""

    name: str
    part: str
    chars: int
    tokens: int
    hash: str
    source: str


class FileSize(Struct, frozen=True):
    """One injected file: its size and how much of it was injected."""

    name: str
    path: str
    raw: int
    injected: int
    truncated: bool


class SkillSize(Struct, frozen=True):
    """One entry of the skills catalogue."""

    name: str
    chars: int
    tokens: int


class ToolSize(Struct, frozen=True):
    """One tool's schema, as JSON."""

    name: str
    chars: int
    tokens: int
    hash: str


class PromptReport(Struct, frozen=True):
    """The sizes of a prompt; sections in the order in which they are sent."""

    total: PromptTotal
    sections: tuple[SectionSize, ...]
    files: tuple[FileSize, ...] = ()
    skills: tuple[SkillSize, ...] = ()
    tools: tuple[ToolSize, ...] = ()


def report_prompt(
    prompt: SystemPrompt, *, turn: TurnBlock | None = None, tools: Iterable[ToolSpec] = ()
) -> PromptReport:
    """Measure a prompt, the block before the current message if there is one, and the tool schemas."""
    records = prompt.records + (turn.records if turn else ())
    chars = len(prompt.text) + (len(turn.text) if turn else 0)
    return PromptReport(
        PromptTotal(chars, sum(record.tokens for record in records)),
        tuple(
            SectionSize(record.name, record.part.value, record.chars, record.tokens, record.hash, record.source)
            for record in records
        ),
        tuple(_measure_files(records)),
        tuple(size for record in records if record.name == "skills" for size in _measure_skills(record.text)),
        tuple(_measure_tool(tool) for tool in tools),
    )


def _measure_files(records: Iterable[SectionRecord]) -> Iterator[FileSize]:
    for record in records:
        if record.file is not None:
            injected = max(0, record.chars - len(f"## {record.source}\n\n"))
            yield FileSize(record.file.name, record.source, record.file.raw, injected, record.file.truncated)


def _measure_skills(text: str) -> Iterator[SkillSize]:
    for entry in _SKILL.finditer(text):
        yield SkillSize(html.unescape(entry[1]), len(entry[0]), estimate_tokens(entry[0]))
    for group in _BUNDLED.finditer(text):
        for row in group[1].removesuffix("\n").split("\n"):
            yield SkillSize(html.unescape(row.partition(":")[0]), len(row), estimate_tokens(row))


def _measure_tool(tool: ToolSpec) -> ToolSize:
    schema = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return ToolSize(tool.name, len(text), estimate_tokens(text), digest)


class CacheMove(Struct, frozen=True):
    """The first difference in what a provider caches; everything after it is not read from the cache."""

    name: str
    because: str


class ReportDiff(Struct, frozen=True):
    """What changed between two prompts, by section name; `moved` is None while the cached prefix is the same."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    moved: CacheMove | None


def diff_reports(before: PromptReport, after: PromptReport) -> ReportDiff:
    """Compare two prompts of a session. Turn sections count as changes but never invalidate the cache."""
    old, new = _by_name(before.sections), _by_name(after.sections)
    return ReportDiff(
        tuple(name for name in new if name not in old),
        tuple(name for name in old if name not in new),
        tuple(name for name in new if name in old and old[name].hash != new[name].hash),
        _first_moved(_cached(before), _cached(after)),
    )


def _by_name(sections: Iterable[SectionSize]) -> dict[str, SectionSize]:
    """Return sections by name; files with the same name in different folders are distinguished."""
    named: dict[str, SectionSize] = {}
    for section in sections:
        name = section.name if section.name not in named else f"{section.name} ({section.source})"
        named[name] = section
    return named


def _cached(report: PromptReport) -> dict[str, SectionSize | ToolSize]:
    """Return what a provider caches, in its order: tools, then the system blocks."""
    tools: dict[str, SectionSize | ToolSize] = {f"tool:{tool.name}": tool for tool in report.tools}
    return tools | _by_name(section for section in report.sections if section.part != PromptPart.TURN)


def _first_moved(
    before: Mapping[str, SectionSize | ToolSize], after: Mapping[str, SectionSize | ToolSize]
) -> CacheMove | None:
    for old, new in zip(before, after, strict=False):
        if old != new:
            return _explain_order(old, new, before, after)
        if before[old].hash != after[new].hash:
            return CacheMove(new, f"its text changed ({before[old].chars:,} to {after[new].chars:,} characters)")
    if len(before) == len(after):
        return None
    longer, word = (before, "removed") if len(before) > len(after) else (after, "added")
    return CacheMove(list(longer)[min(len(before), len(after))], f"it was {word}")


def _explain_order(old: str, new: str, before: Mapping[str, object], after: Mapping[str, object]) -> CacheMove:
    if new not in before:
        return CacheMove(new, "it was added")
    if old not in after:
        return CacheMove(old, "it was removed")
    return CacheMove(new, "it changed places")
