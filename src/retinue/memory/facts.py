"""Recognising standing facts: sentences in which a person gives an instruction for all answers, or states a preference.

Precision counts more than recall: what is recognised is written down and added to later messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from retinue.memory.search.turns import StandingKind

MAX_MESSAGE_CHARS = 4_000
"""Longer messages are pasted texts rather than statements."""
MAX_FACT_CHARS = 200
_MIN_WORDS = 3

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+")
_FENCE = re.compile(r"^(`{3,}|~{3,}).*?(?:^\1|\Z)", re.MULTILINE | re.DOTALL)
_LEAD = (
    r"(?:(?:please|and|also|but|okay|ok|hi|hello|thanks|by the way|btw|remember(?: to)?|note that|make sure to"
    r"|be sure to),?\s+)*"
)
_HABIT = (
    r"(?:from now on|going forward|in (?:the )?future,|ab (?:jetzt|sofort)|in zukunft|künftig|désormais|dorénavant"
    r"|à partir de maintenant|de ahora en adelante|a partir de ahora|d'ora in poi|vanaf nu)"
)
_ASKED = (
    r"(?:(?:when|whenever|if|every time) (?:i (?:ask|say|send|request|mention|share|paste|upload|write)"
    r"|you (?:answer|reply|respond|write|draft|send|explain|summari[sz]e|format|list|suggest|recommend|book|search))\b)"
)
_WISH = r"i(?:'d| would)? (?:want|like|need) you to (?:always|never)\b"
_LATE_HABIT = (
    r"(?!(?:he|she|they|it|the|er|sie|es|il|elle)\b)(?:\S+\s+){1,8}(?:from now on|ab (?:jetzt|sofort)|désormais)\b"
)
_INSTRUCTION = re.compile(
    rf"{_LEAD}(?:{_HABIT}|{_ASKED}|{_WISH}"
    rf"|(?:always|never|don't ever|do not ever|immer|nie|toujours|siempre|nunca)\s+(?P<verb>[^\W\d_]+))|{_LATE_HABIT}",
    re.IGNORECASE,
)
_NO_VERB = """
a an the again am are been did good glad great got gonna had happy has have heard is knew liked mind more nice said saw
seen so thought too tried wanted was were welcome
"""
_NO_VERBS: frozenset[str] = frozenset(_NO_VERB.split())
_PREFERENCE = re.compile(
    r"\b(?:i (?:(?:really|strongly|usually|generally|always|much|do) )?(?:prefer(?!red)|dislike|hate|avoid|can't stand)"
    r"|i(?:'m| am) allergic to|my (?:preference|favou?rite(?: [^\W\d_]+){1,3}) (?:is|are)|ich bevorzuge|je préfère"
    r"|prefiero|preferisco)\s+(?!(?:it|this|that|these|those|you|not)\b)",
    re.IGNORECASE,
)
_REST = re.compile(
    r"[,;]\s*(?:(?:(?:so|and|but)\s+)?(?:can|could|how|what|which|would|will|do|does|is|are|where|when|should|any)"
    r"|(?:but|so) i(?:'m| am| want| need| don't| do not))\b.*$",
    re.IGNORECASE,
)


class StatedFact(Struct, frozen=True):
    """An instruction or preference, in the words in which it was stated."""

    kind: StandingKind
    text: str


def find_facts(text: str) -> list[StatedFact]:
    """Return the instructions and preferences in a text; quoted text and code are skipped."""
    if len(text) > MAX_MESSAGE_CHARS:
        return []
    found = (_recognise(sentence) for sentence in _sentences(_FENCE.sub("", text)))
    return list(dict.fromkeys(fact for fact in found if fact is not None))


def _sentences(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        if not line.lstrip().startswith(">"):
            yield from (part.strip(' \t-*•"“”') for part in _SENTENCE_END.split(line))


def _recognise(sentence: str) -> StatedFact | None:
    if len(sentence.split()) < _MIN_WORDS:
        return None
    order = _INSTRUCTION.match(sentence)
    if order and not sentence.endswith("?") and _is_order(order["verb"]):
        return StatedFact("instruction", _shortened(sentence))
    stated = _PREFERENCE.search(sentence)
    if stated is None:
        return None
    # People state a preference and ask something about it in one sentence; only the statement lasts.
    clause = sentence if len(sentence) <= MAX_FACT_CHARS // 2 else sentence[stated.start() :]
    clause = _REST.sub("", clause)
    if clause.endswith("?") or not _PREFERENCE.search(clause) or len(clause.split()) < _MIN_WORDS:
        return None
    return StatedFact("preference", _shortened(clause[0].upper() + clause[1:]))


def _is_order(verb: str | None) -> bool:
    """Return whether the word after `always` or `never` can be a verb in the imperative."""
    if verb is None:
        return True
    word = verb.lower()
    return word not in _NO_VERBS and (not word.endswith("ed") or word.endswith("eed"))


def _shortened(text: str) -> str:
    """Return a text of at most `MAX_FACT_CHARS` characters, cut where a clause or a word ends."""
    if len(text) <= MAX_FACT_CHARS:
        return text
    cut = text[:MAX_FACT_CHARS]
    end = max(cut.rfind(", "), cut.rfind("; "))
    end = end if end > MAX_FACT_CHARS // 2 else cut.rfind(" ")
    return cut[:end] if end > 0 else cut
