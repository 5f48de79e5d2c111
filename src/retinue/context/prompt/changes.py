"""A prompt as plugins changed it."""

from __future__ import annotations

from retinue.context.prompt.build import Block, Part, Record, SystemPrompt, TurnBlock

SOURCE = "plugins"


def change_system(prompt: SystemPrompt, *, stable: str = "", before: str = "", after: str = "") -> SystemPrompt:
    """The prompt with its stable block replaced, or with texts before and after its session block.

    Additions never stand in the stable block: a plugin that says something new each turn must not cost its cache.
    """
    first = Block((_record("replacement", Part.STABLE, stable),)) if stable else prompt.stable_block
    session = prompt.session_block.records
    if before:
        session = (_record("addition_before", Part.SESSION, before), *session)
    if after:
        session = (*session, _record("addition_after", Part.SESSION, after))
    return SystemPrompt(first, Block(session))


def change_turn(turn: TurnBlock, *, before: str = "", after: str = "") -> TurnBlock:
    """The block in front of a message with texts before and after it."""
    head = (_record("addition_before_message", Part.TURN, before),) if before else ()
    tail = (_record("addition_after_message", Part.TURN, after),) if after else ()
    return TurnBlock((*head, *turn.records, *tail))


def _record(name: str, part: Part, text: str) -> Record:
    return Record(name, part, SOURCE, text)
