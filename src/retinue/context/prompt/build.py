"""From inputs to the texts that are sent, with a record of every section.

The records are the prompt: the texts that go to a model are the records joined by blank lines, so whoever reads the
records reads what was sent. Equal inputs give the same objects back, which makes a turn in which nothing changed cheap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cached_property, lru_cache

from msgspec import Struct

from retinue.context.prompt.inputs import ContextFile, Contribution, Mode, SessionInputs, StableInputs, TurnInputs
from retinue.context.prompt.sections import SESSION, STABLE, TURN, I, Section
from retinue.core.tokens import estimate_tokens
from retinue.security.escaping import literal, passage

_CACHED_PROMPTS = 64
_HASH_DIGITS = 16


class Part(StrEnum):
    """How long a section stays the same."""

    STABLE = "stable"
    SESSION = "session"
    TURN = "turn"


class Record(Struct, frozen=True, dict=True):
    """A section as it is sent, and where it came from; `file` where it is one. It is measured when somebody asks."""

    name: str
    part: Part
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


class Block(Struct, frozen=True, dict=True):
    """Records that are sent together."""

    records: tuple[Record, ...] = ()

    @cached_property
    def text(self) -> str:
        return "\n\n".join(record.text for record in self.records)


class TurnBlock(Block, frozen=True):
    """What stands in front of the current message."""


class SystemPrompt(Struct, frozen=True):
    """The two system blocks: the first changes with the workspace, the second with the session."""

    stable_block: Block
    session_block: Block

    @property
    def records(self) -> tuple[Record, ...]:
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


def build_system_prompt(stable: StableInputs, session: SessionInputs, mode: Mode = Mode.FULL) -> SystemPrompt:
    """The system prompt of a session."""
    return SystemPrompt(_stable_block(stable, mode), _session_block(session, mode))


def build_turn_block(turn: TurnInputs) -> TurnBlock:
    """What goes in front of one message; its text is empty when there is nothing to say."""
    return TurnBlock(tuple(_render(TURN, turn, Part.TURN, Mode.FULL)))


@lru_cache(maxsize=_CACHED_PROMPTS)
def _stable_block(inputs: StableInputs, mode: Mode) -> Block:
    return Block(tuple(_render(_without(STABLE, inputs.contribution), inputs, Part.STABLE, mode)))


@lru_cache(maxsize=_CACHED_PROMPTS)
def _session_block(inputs: SessionInputs, mode: Mode) -> Block:
    return Block(tuple(_render(_without(SESSION, inputs.contribution), inputs, Part.SESSION, mode)))


def _without(sections: Iterable[Section[I]], contribution: Contribution | None) -> Iterator[Section[I]]:
    omit = contribution.omit if contribution else frozenset()
    return (section for section in sections if section.name not in omit)


def _render(sections: Iterable[Section[I]], inputs: I, part: Part, mode: Mode) -> Iterator[Record]:
    for section in sections:
        if mode not in section.modes:
            continue
        text = _normalise(section.render(inputs) or "")
        if text:
            yield Record(section.name, part, section.source(inputs), text)
        for file in section.files(inputs):
            yield _record_file(file, part)


def _record_file(file: ContextFile, part: Part) -> Record:
    path = literal(file.path)
    return Record(f"file:{literal(file.name)}", part, path, _normalise(f"## {path}\n\n{file.text}"), file)


def _normalise(text: str) -> str:
    """The same bytes for the same words: one kind of line end, no trailing spaces, nothing hidden."""
    return "\n".join(line.rstrip(" \t") for line in passage(text).split("\n")).strip()
