"""A prompt as plugins changed it."""

from __future__ import annotations

from retinue.context.prompt.build import Block, Part, Record, SystemPrompt, TurnBlock
from retinue.security.escaping import passage

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
    """The block in front of a message with texts before and after it, told apart from what the sender wrote."""
    head = (_record("addition_before_message", Part.TURN, _labelled(before)),) if before else ()
    tail = (_record("addition_after_message", Part.TURN, _labelled(after)),) if after else ()
    return TurnBlock((*head, *turn.records, *tail))


def _labelled(text: str) -> str:
    return f"[Added by a plugin, not written by the sender]\n{text}\n[End of the addition]"


def _record(name: str, part: Part, text: str) -> Record:
    return Record(name, part, SOURCE, passage(text))
