"""Pruning: old tool results are shortened in what the model reads. The transcript keeps them.

A provider's cache holds the beginning of a request, so what was sent must be sent again in the same words. Pruning
therefore waits until the cache has run out anyway, and remembers in `Marks` what it shortened: the requests after it
repeat exactly that, until the cache has run out again.
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

Mark = str
"""A tool result by the hash of its call and its words, and how many of the same stand before it."""


class Marks(Struct, frozen=True):
    """Which tool results were shortened or taken out, so that the next request does the same."""

    trimmed: frozenset[Mark] = frozenset()
    cleared: frozenset[Mark] = frozenset()


NO_MARKS = Marks()


class Pruned(Struct, frozen=True):
    """The messages to send; `changed` says that more was pruned than before, so the provider's cache starts over."""

    messages: tuple[Message, ...]
    changed: bool
    marks: Marks = NO_MARKS


def prune(
    messages: Sequence[Message],
    settings: ContextPruningSettings,
    *,
    window_tokens: int,
    last_cache_touch: datetime | None,
    now: datetime,
    marks: Marks = NO_MARKS,
) -> Pruned:
    """Shorten old tool results once the provider's cache has run out; otherwise repeat what `marks` says.

    `last_cache_touch` is when the session last called a model, None where it never did. Never touched are what stands
    before the first user message, the results after the last few answers, results with pictures, and the results of
    tools that the settings leave alone.
    """
    if settings.mode == "off" or window_tokens <= 0:
        return Pruned(tuple(messages), changed=False)
    draft = _Draft(tuple(messages), settings.soft_trim, settings.hard_clear.placeholder)
    eligible = _find_eligible(messages, settings)
    for at in eligible:
        draft.repeat(at, marks)
    cache_is_cold = last_cache_touch is None or now - last_cache_touch >= settings.ttl
    changed = cache_is_cold and _prune_more(draft, eligible, settings, window_tokens)
    return Pruned(tuple(draft.messages), changed, Marks(frozenset(draft.trimmed), frozenset(draft.cleared)))


class _Draft:
    """The messages while they are pruned; marks and cuts are always made from the result as it was."""

    def __init__(self, originals: tuple[Message, ...], limits: SoftTrim, placeholder: str) -> None:
        self.originals = originals
        self.limits = limits
        self.placeholder = placeholder
        self.messages = list(originals)
        self.marks = dict(_mark_all(originals))
        self.trimmed: set[Mark] = set()
        self.cleared: set[Mark] = set()

    def repeat(self, at: int, marks: Marks) -> None:
        if self.marks[at] in marks.cleared:
            self.clear(at)
        elif self.marks[at] in marks.trimmed:
            self.trim(at)

    def trim(self, at: int) -> bool:
        """Shorten a result; False where that would not make it shorter."""
        original = _result(self.originals[at])
        if not self._put(at, trim_text(original.text, self.limits)):
            return False
        self.trimmed.add(self.marks[at])
        return True

    def clear(self, at: int) -> bool:
        """Take a result's words out; False where that would not make it shorter."""
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
    """The beginning and the end of a long text with a note on what is missing; a short one as it is."""
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
    """Shorten all eligible results, then take out the oldest until there is room; whether anything changed."""
    sizes = [tokens_of(message) for message in draft.messages]
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


def _mark_all(messages: Sequence[Message]) -> Iterator[tuple[int, Mark]]:
    """The place and mark of each tool result; some models use the ids of their calls more than once."""
    seen: Counter[str] = Counter()
    for at, message in enumerate(messages):
        if isinstance(message, ToolResult):
            words = f"{message.call_id}\0{message.text}".encode("utf-8", "surrogatepass")
            digest = hashlib.sha256(words).hexdigest()[:16]
            yield at, f"{digest}-{seen[digest]}"
            seen[digest] += 1
