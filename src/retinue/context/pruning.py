"""Pruning: old tool results are shortened in the messages that the model reads. The transcript keeps them.

A provider caches the prefix of a request, so messages that were sent must be repeated unchanged. Pruning therefore
waits until the cache has expired, and records in `PruneMarks` what it shortened: later requests repeat exactly that,
until the cache has expired again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from retinue.context.measure import tokens_of
from retinue.context.settings import ContextPruningSettings, PruningTools, SoftTrim
from retinue.core.messages import AssistantMessage, Image, Message, Text, ToolResult, UserMessage

PruneMark = str
"""Identifies a tool result by the hash of its call and text, and the number of equal ones before it."""


class PruneMarks(Struct, frozen=True):
    """The tool results that were shortened or cleared, so that the next request does the same."""

    trimmed: frozenset[PruneMark] = frozenset()
    cleared: frozenset[PruneMark] = frozenset()


NO_MARKS = PruneMarks()


class Pruned(Struct, frozen=True):
    """The messages to send; `changed` says that more was pruned than before, which invalidates the cache."""

    messages: tuple[Message, ...]
    changed: bool
    marks: PruneMarks = NO_MARKS


def prune(
    messages: Sequence[Message],
    settings: ContextPruningSettings,
    *,
    window_tokens: int,
    last_cache_touch: datetime | None,
    now: datetime,
    marks: PruneMarks = NO_MARKS,
) -> Pruned:
    """Shorten old tool results if the provider's cache has expired; otherwise apply `marks` only.

    `last_cache_touch` is the time of the session's last model call, None if there was none. Never pruned are messages
    before the first user message, results after the last few answers, results with images, and the results of
    tools that the settings exclude.
    """
    if settings.mode == "off" or window_tokens <= 0:
        return Pruned(tuple(messages), changed=False)
    draft = _Draft(tuple(messages), settings.soft_trim, settings.hard_clear.placeholder)
    eligible = _find_eligible(messages, settings)
    for at in eligible:
        draft.repeat(at, marks)
    cache_is_cold = last_cache_touch is None or now - last_cache_touch >= settings.ttl
    changed = cache_is_cold and _prune_more(draft, eligible, settings, window_tokens)
    return Pruned(tuple(draft.messages), changed, PruneMarks(frozenset(draft.trimmed), frozenset(draft.cleared)))


class _Draft:
    """The messages while they are pruned; marks and shortened texts are derived from the original result."""

    def __init__(self, originals: tuple[Message, ...], limits: SoftTrim, placeholder: str) -> None:
        self.originals = originals
        self.limits = limits
        self.placeholder = placeholder
        self.messages = list(originals)
        self.marks = dict(_mark_all(originals))
        self.trimmed: set[PruneMark] = set()
        self.cleared: set[PruneMark] = set()

    def repeat(self, at: int, marks: PruneMarks) -> None:
        if self.marks[at] in marks.cleared:
            self.clear(at)
        elif self.marks[at] in marks.trimmed:
            self.trim(at)

    def trim(self, at: int) -> bool:
        """Shorten a result; return False if that would not make it shorter."""
        original = _result(self.originals[at])
        if not self._put(at, trim_text(original.text, self.limits)):
            return False
        self.trimmed.add(self.marks[at])
        return True

    def clear(self, at: int) -> bool:
        """Replace a result by the placeholder; return False if that would not make it shorter."""
        if not self._put(at, self.placeholder):
            return False
        self.cleared.add(self.marks[at])
        self.trimmed.discard(self.marks[at])
        return True

    def length(self, at: int) -> int:
        return len(_result(self.messages[at]).text)

    def _put(self, at: int, text: str) -> bool:
        if len(text) >= self.length(at):
            return False
        self.messages[at] = replace(_result(self.messages[at]), content=(Text(text),))
        return True


def _result(message: Message) -> ToolResult:
    assert isinstance(message, ToolResult)
    return message


def trim_text(text: str, limits: SoftTrim) -> str:
    """Return the beginning and end of a long text with a note about the omitted part; a short text unchanged."""
    if len(text) <= limits.max_chars or limits.head_chars + limits.tail_chars >= len(text):
        return text
    tail = text[len(text) - limits.tail_chars :]
    note = (
        f"[Tool result trimmed: kept first {limits.head_chars} chars "
        f"and last {limits.tail_chars} chars of {len(text)} chars.]"
    )
    return f"{text[: limits.head_chars]}\n...\n{tail}\n\n{note}"


def _find_eligible(messages: Sequence[Message], settings: ContextPruningSettings) -> list[int]:
    start = next((at for at, message in enumerate(messages) if isinstance(message, UserMessage)), len(messages))
    answers = [at for at, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    keep = settings.keep_last_assistants
    if keep > len(answers):
        return []
    end = answers[-keep] if keep else len(messages)
    return [at for at in range(start, end) if _may_prune(messages[at], settings.tools)]


def _may_prune(message: Message, tools: PruningTools) -> bool:
    if not isinstance(message, ToolResult) or any(isinstance(part, Image) for part in message.content):
        return False
    return not _matches(message.tool, tools.deny) and (not tools.allow or _matches(message.tool, tools.allow))


def _matches(tool: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(tool.lower(), glob.strip().lower()) for glob in globs)


def _prune_more(draft: _Draft, eligible: list[int], settings: ContextPruningSettings, window: int) -> bool:
    """Shorten all eligible results, then clear the oldest until they fit; return whether anything changed."""
    sizes = list(tokens_of.of_all(draft.messages))
    total = sum(sizes)
    if total < settings.soft_trim_ratio * window:
        return False
    changed = False
    for at in eligible:
        if draft.trim(at):
            changed = True
            total += tokens_of(draft.messages[at]) - sizes[at]
            sizes[at] = tokens_of(draft.messages[at])
    prunable = sum(map(draft.length, eligible))
    if not settings.hard_clear.enabled or prunable < settings.min_prunable_tool_chars:
        return changed
    for at in eligible:
        if total < settings.hard_clear_ratio * window:
            break
        if draft.clear(at):
            changed = True
            total += tokens_of(draft.messages[at]) - sizes[at]
    return changed


def _mark_all(messages: Sequence[Message]) -> Iterator[tuple[int, PruneMark]]:
    """Yield the position and mark of each tool result; some models reuse call ids."""
    seen: Counter[str] = Counter()
    for at, message in enumerate(messages):
        if isinstance(message, ToolResult):
            words = f"{message.call_id}\0{message.text}".encode("utf-8", "surrogatepass")
            digest = hashlib.sha256(words).hexdigest()[:16]
            yield at, f"{digest}-{seen[digest]}"
            seen[digest] += 1
