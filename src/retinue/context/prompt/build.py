"""The sections of the prompt, their order, and building the prompt from its inputs with a record of every section.

Each section is in the list of its lifetime and is rendered by a pure function; to reorder, add or remove one, change
the lists here. The texts that are sent are the records joined by blank lines, so the records show exactly what was
sent. Equal inputs return the same cached objects, which makes a turn without changes cheap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Generic, TypeVar

from msgspec import Struct

from retinue.context.prompt import session as s
from retinue.context.prompt import stable as b
from retinue.context.prompt.inputs import ContextFile, Contribution, PromptMode, SessionInputs, StableInputs, TurnInputs
from retinue.core.text import estimate_tokens
from retinue.security.untrusted_text import literal, passage

_CACHED_PROMPTS = 64
_HASH_DIGITS = 16

I = TypeVar("I", StableInputs, SessionInputs, TurnInputs)  # noqa: E741

FULL_ONLY = frozenset({PromptMode.FULL})
FULL_AND_MINIMAL = frozenset({PromptMode.FULL, PromptMode.MINIMAL})
EVERY_MODE = frozenset(PromptMode)


def _from_retinue(inputs: StableInputs | SessionInputs | TurnInputs) -> str:
    return "retinue"


def _from_skills(inputs: StableInputs) -> str:
    return "skills"


def _no_files(inputs: StableInputs | SessionInputs | TurnInputs) -> tuple[ContextFile, ...]:
    return ()


class Section(Struct, Generic[I], frozen=True):
    """One section of the prompt. `render` returns its text with its heading; None or an empty text omits it.

    `files` are the files after the section; each becomes a separate record, so that its size is known.
    """

    name: str
    render: Callable[[I], str | None]
    modes: frozenset[PromptMode] = FULL_ONLY
    source: Callable[[I], str] = _from_retinue
    files: Callable[[I], tuple[ContextFile, ...]] = _no_files


STABLE: tuple[Section[StableInputs], ...] = (
    Section("identity", b.identity, EVERY_MODE),
    Section("tooling", b.tooling, FULL_AND_MINIMAL),
    Section("interaction_style", b.interaction_style, source=b.source_of_contribution),
    Section("tool_call_style", b.tool_call_style, source=b.source_of_tool_call_style),
    Section("execution_bias", b.execution_bias, source=b.source_of_execution_bias),
    Section("delegation", b.delegation),
    Section("stable_prefix", b.stable_prefix, source=b.source_of_contribution),
    Section("safety", b.safety, FULL_AND_MINIMAL),
    Section("control", b.control),
    Section("skills", b.skills, FULL_AND_MINIMAL, _from_skills),
    Section("memory_recall", b.memory_recall),
    Section("self_update", b.self_update),
    Section("model_aliases", b.model_aliases),
    Section("workspace", b.workspace, FULL_AND_MINIMAL),
    Section("documentation", b.documentation),
    Section("sandbox", b.sandbox, FULL_AND_MINIMAL),
    Section("authorised_senders", b.authorised_senders),
    Section("time_zone", b.time_zone, FULL_AND_MINIMAL),
    Section("workspace_files", b.workspace_files),
    Section("bootstrap_pending", b.bootstrap_pending),
    Section("output_directives", b.output_directives),
    Section("reasoning_format", b.reasoning_format),
    Section("project_context", b.project_context, FULL_AND_MINIMAL, files=b.project_files),
    Section("silent_replies", b.silent_replies),
)

SESSION: tuple[Section[SessionInputs], ...] = (
    Section("messaging", s.messaging),
    Section("page_embeds", s.page_embeds),
    Section("voice", s.voice),
    Section("occasion", s.occasion, FULL_AND_MINIMAL),
    Section("reactions", s.reactions),
    Section("heartbeats", s.heartbeats),
    Section("dynamic_suffix", s.dynamic_suffix, source=s.source_of_suffix),
    Section("runtime", s.runtime, FULL_AND_MINIMAL),
)

TURN: tuple[Section[TurnInputs], ...] = (
    Section("preamble", s.preamble),
    Section("heartbeat", s.heartbeat, files=s.heartbeat_files),
    Section("standing_facts", s.standing_facts),
    Section("memories", s.memories),
    Section("background_commands", s.background_commands),
    Section("notices", s.notices),
)


class PromptPart(StrEnum):
    """How long a section stays the same."""

    STABLE = "stable"
    SESSION = "session"
    TURN = "turn"


class SectionRecord(Struct, frozen=True, dict=True):
    """A section as it is sent, and its source; `file` is set for an injected file. Sizes are computed on demand."""

    name: str
    part: PromptPart
    source: str
    text: str
    file: ContextFile | None = None

    @property
    def chars(self) -> int:
        return len(self.text)

    @cached_property
    def tokens(self) -> int:
        return estimate_tokens(self.text)

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]


class PromptBlock(Struct, frozen=True, dict=True):
    """Records that are sent together."""

    records: tuple[SectionRecord, ...] = ()

    @cached_property
    def text(self) -> str:
        return "\n\n".join(record.text for record in self.records)


class TurnBlock(PromptBlock, frozen=True):
    """The block before the current message."""


class SystemPrompt(Struct, frozen=True):
    """The two system blocks: the first changes with the workspace, the second with the session."""

    stable_block: PromptBlock
    session_block: PromptBlock

    @property
    def records(self) -> tuple[SectionRecord, ...]:
        return self.stable_block.records + self.session_block.records

    @property
    def stable(self) -> str:
        return self.stable_block.text

    @property
    def session(self) -> str:
        return self.session_block.text

    @property
    def text(self) -> str:
        return "\n\n".join(filter(None, (self.stable, self.session)))


def build_system_prompt(
    stable: StableInputs, session: SessionInputs, mode: PromptMode = PromptMode.FULL
) -> SystemPrompt:
    """Return the system prompt of a session."""
    return SystemPrompt(_stable_block(stable, mode), _session_block(session, mode))


def build_turn_block(turn: TurnInputs) -> TurnBlock:
    """Return the block before one message; its text may be empty."""
    return TurnBlock(tuple(_render(TURN, turn, PromptPart.TURN, PromptMode.FULL)))


@lru_cache(maxsize=_CACHED_PROMPTS)
def _stable_block(inputs: StableInputs, mode: PromptMode) -> PromptBlock:
    return PromptBlock(tuple(_render(_without(STABLE, inputs.contribution), inputs, PromptPart.STABLE, mode)))


@lru_cache(maxsize=_CACHED_PROMPTS)
def _session_block(inputs: SessionInputs, mode: PromptMode) -> PromptBlock:
    return PromptBlock(tuple(_render(_without(SESSION, inputs.contribution), inputs, PromptPart.SESSION, mode)))


def _without(sections: Iterable[Section[I]], contribution: Contribution | None) -> Iterator[Section[I]]:
    omit = contribution.omit if contribution else frozenset()
    return (section for section in sections if section.name not in omit)


def _render(sections: Iterable[Section[I]], inputs: I, part: PromptPart, mode: PromptMode) -> Iterator[SectionRecord]:
    for section in sections:
        if mode not in section.modes:
            continue
        text = _normalise(section.render(inputs) or "")
        if text:
            yield SectionRecord(section.name, part, section.source(inputs), text)
        for file in section.files(inputs):
            yield _record_file(file, part)


def _record_file(file: ContextFile, part: PromptPart) -> SectionRecord:
    path = literal(file.path)
    return SectionRecord(f"file:{literal(file.name)}", part, path, _normalise(f"## {path}\n\n{file.text}"), file)


def _normalise(text: str) -> str:
    """Normalise line ends, remove trailing spaces and hidden characters, so that equal texts have equal bytes."""
    return "\n".join(line.rstrip(" \t") for line in passage(text).split("\n")).strip()


SOURCE = "plugins"


def change_system(prompt: SystemPrompt, *, stable: str = "", before: str = "", after: str = "") -> SystemPrompt:
    """Return the prompt with its stable block replaced, or with texts before and after its session block.

    Additions are never part of the stable block, because a plugin that changes its text each turn would invalidate the
    cache.
    """
    first = PromptBlock((_record("replacement", PromptPart.STABLE, stable),)) if stable else prompt.stable_block
    session = prompt.session_block.records
    if before:
        session = (_record("addition_before", PromptPart.SESSION, before), *session)
    if after:
        session = (*session, _record("addition_after", PromptPart.SESSION, after))
    return SystemPrompt(first, PromptBlock(session))


def change_turn(turn: TurnBlock, *, before: str = "", after: str = "") -> TurnBlock:
    """Return the block before a message with added texts, labelled as not written by the sender."""
    head = (_record("addition_before_message", PromptPart.TURN, _labelled(before)),) if before else ()
    tail = (_record("addition_after_message", PromptPart.TURN, _labelled(after)),) if after else ()
    return TurnBlock((*head, *turn.records, *tail))


def _labelled(text: str) -> str:
    return f"[Added by a plugin, not written by the sender]\n{text}\n[End of the addition]"


def _record(name: str, part: PromptPart, text: str) -> SectionRecord:
    return SectionRecord(name, part, SOURCE, passage(text))
