"""A question as the program understands it."""

from __future__ import annotations

import re

from retinue.memory.query import Query

MOST_TERMS = 16
_TYPED = re.compile(r"^\s*(?:lex|vec|hyde|expand|intent):", re.IGNORECASE)
_NEGATION = re.compile(r"(^|\s)-+(?=[\w\"])")


def ask_for_all(query: Query) -> str:
    """Every word and phrase of the question, all of which must stand in a file."""
    asked = query.text.lower()
    # A day is also known by other spellings; nobody writes all of them in one note.
    words = (word for word in query.words if word in asked)
    return _plain(" ".join([*_phrases(query), *words, *query.pairs][:MOST_TERMS]))


def ask_for_any(query: Query) -> str:
    """The words and phrases one by one, so that files with some of them are found too, those with most first."""
    terms = [*_phrases(query), *query.words, *query.pairs][:MOST_TERMS]
    return "\n".join(f"lex: {_plain(term)}" for term in dict.fromkeys([ask_for_all(query), *terms]))


def ask_by_meaning(query: Query) -> str:
    """The question as it is, without what the program would take for its own syntax."""
    return _NEGATION.sub(r"\1", _TYPED.sub("", _plain(query.text))).replace('"', " ").strip()


def _phrases(query: Query) -> list[str]:
    return [f'"{" ".join(phrase.replace(chr(34), " ").split())}"' for phrase in query.exact]


def _plain(text: str) -> str:
    """Without halves of characters, which cannot be handed to a program."""
    return text.encode("utf-8", "replace").decode()
