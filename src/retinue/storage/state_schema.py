"""The tables of `state.sqlite`, version by version.

A version is a tuple of statements, applied once and in order. Versions that were released are never edited: a change is
a new version at the end.
"""

from __future__ import annotations

Schema = tuple[tuple[str, ...], ...]

# A message from the moment it is accepted until its answer is delivered. The order of `id` is the order of arrival.
# `claimed_into` is the run that answers it: its own, or that of the turn it was merged into.
INBOX = """
CREATE TABLE inbox (
    id           INTEGER PRIMARY KEY,
    run          TEXT NOT NULL UNIQUE,
    session      TEXT NOT NULL,
    agent        TEXT NOT NULL,
    payload      TEXT NOT NULL,
    idempotency  TEXT UNIQUE,
    accepted_at  TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('waiting', 'claimed', 'done', 'dropped')),
    claimed_into TEXT,
    holder       TEXT,
    result       TEXT,
    delivered_at TEXT
)
"""

# What waits in a session, and what a process that died had begun there.
INBOX_BY_SESSION = "CREATE INDEX inbox_by_session ON inbox (session, agent, state)"

# Everything that ends with a turn.
INBOX_BY_TURN = "CREATE INDEX inbox_by_turn ON inbox (claimed_into)"

# Answers that nobody has seen yet; the index holds only those.
INBOX_UNDELIVERED = """
CREATE INDEX inbox_undelivered ON inbox (session, agent) WHERE result IS NOT NULL AND delivered_at IS NULL
"""

STATE_SCHEMA: Schema = ((INBOX, INBOX_BY_SESSION, INBOX_BY_TURN, INBOX_UNDELIVERED),)
