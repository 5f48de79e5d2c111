"""Writing down the instructions and preferences that the owner states in messages, and changing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.errors import UsageError
from retinue.runtime.agents.workspace import AgentWorkspace
from retinue.storage.files import NotThere, Root

if TYPE_CHECKING:
    from retinue.memory.facts import StatedFact

MAX_NOTE_BYTES = 1024 * 1024

# A message with none of these states no standing fact. Recognising them takes 3 ms the first time, and most one-shot
# turns need it never.
_SIGNS = (
    *("always", "never", "don't ever", "do not ever", "from now on", "going forward", "in future", "in the future"),
    *("prefer", "favorite", "favourite", "dislike", "hate", "avoid", "can't stand", "allergic", "whenever"),
    *("every time", "when i ", "if i ", "when you ", "if you ", "ab jetzt", "ab sofort", "in zukunft", "künftig"),
    *("immer", "nie", "bevorzuge", "désormais", "dorénavant", "à partir de maintenant", "toujours", "préfère"),
    *("de ahora en adelante", "a partir de ahora", "siempre", "nunca", "prefiero", "preferisco", "d'ora in poi"),
    "vanaf nu",
)


def write_stated(workspace: AgentWorkspace, message: str) -> bool:
    """Write down what a message of the owner states for all answers; return whether it stated anything new."""
    lowered = message.lower()
    for sign in _SIGNS:  # a generator costs a call for each sign, in every turn
        if sign in lowered:
            break
    else:
        return False
    from retinue.memory.facts import find_facts

    facts = find_facts(workspace.home.redactor.redact(message))
    return bool(facts) and _add(workspace.root, facts)


def add_fact(workspace: AgentWorkspace, text: str) -> bool:
    """Add a fact in the owner's words; return False if it is there already."""
    from retinue.memory.facts import StatedFact

    stated = " ".join(text.split())
    if not stated:
        raise UsageError("The text is empty. Write what should apply to every answer, such as 'Answer in German.'")
    return _add(workspace.root, [StatedFact("instruction", stated)])


def remove_fact(workspace: AgentWorkspace, line: int) -> str:
    """Remove the fact on a line of the note; return the note's path."""
    from retinue.memory.standing import STANDING_NOTE, without_item

    try:
        changed = without_item(_read(workspace.root), line)
    except LookupError:
        raise UsageError(
            f"{STANDING_NOTE} has no item on line {line}. `retinue memory standing list` shows the lines; edit other "
            "notes yourself."
        ) from None
    workspace.root.write(STANDING_NOTE, changed.encode())
    return STANDING_NOTE


def _add(root: Root, facts: list[StatedFact]) -> bool:
    from retinue.memory.standing import STANDING_NOTE, added_items

    added = added_items(_read(root), facts)
    if added:
        root.append(STANDING_NOTE, added.encode("utf-8", "replace"))
    return bool(added)


def _read(root: Root) -> str:
    from retinue.memory.standing import STANDING_NOTE

    try:
        return root.read(STANDING_NOTE, max_bytes=MAX_NOTE_BYTES).data.decode("utf-8", "replace")
    except NotThere:
        return ""
