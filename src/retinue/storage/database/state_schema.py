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

# How often a turn took the message. One that ends its process each time before anything is recorded is given up.
INBOX_ATTEMPTS = "ALTER TABLE inbox ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0"

# A question to a person, kept after it was answered. `holder` names the process whose call waits for the answer.
APPROVALS = """
CREATE TABLE approvals (
    id          TEXT PRIMARY KEY,
    agent       TEXT NOT NULL,
    session     TEXT NOT NULL,
    tool        TEXT NOT NULL,
    title       TEXT NOT NULL,
    detail      TEXT NOT NULL,
    remember    TEXT NOT NULL,
    binding     TEXT NOT NULL,
    explanation TEXT NOT NULL,
    holder      TEXT NOT NULL,
    asked_at    TEXT NOT NULL,
    expires_at  TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (
        state IN ('pending', 'allowed-once', 'allowed-always', 'denied', 'expired', 'withdrawn')
    ),
    decided_at  TEXT,
    decided_by  TEXT,
    because     TEXT
)
"""

# What waits for an answer; the index holds only that.
APPROVALS_PENDING = "CREATE INDEX approvals_pending ON approvals (asked_at) WHERE state = 'pending'"

# Processes in which a person would see what a session asks.
APPROVERS = """
CREATE TABLE approvers (
    holder  TEXT NOT NULL,
    agent   TEXT NOT NULL,
    session TEXT NOT NULL,
    PRIMARY KEY (holder, agent, session)
)
"""

# Command patterns that a person allowed for good, besides those of the configuration.
COMMAND_RULES = """
CREATE TABLE command_rules (
    id       TEXT PRIMARY KEY,
    agent    TEXT NOT NULL,
    pattern  TEXT NOT NULL,
    added_at TEXT NOT NULL,
    added_by TEXT NOT NULL,
    command  TEXT NOT NULL,
    UNIQUE (agent, pattern)
)
"""

# When a pattern last let a command run, whether it was remembered or configured.
RULE_USES = """
CREATE TABLE rule_uses (
    agent   TEXT NOT NULL,
    pattern TEXT NOT NULL,
    used_at TEXT NOT NULL,
    command TEXT NOT NULL,
    uses    INTEGER NOT NULL,
    PRIMARY KEY (agent, pattern)
)
"""

# Who may use the gateway. Only a hash of each secret is kept; the secret is random, so one round of hashing will do.
GATEWAY_TOKENS = """
CREATE TABLE gateway_tokens (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('token', 'device', 'local')),
    hash       TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    used_at    TEXT,
    revoked_at TEXT
)
"""

# Codes that let a device get a token of its own, once and soon.
PAIRING_CODES = """
CREATE TABLE pairing_codes (
    hash       TEXT PRIMARY KEY,
    scopes     TEXT NOT NULL,
    expires_at TEXT NOT NULL
)
"""

# Jobs that run at set times. `body` is the job; the other columns find what is due.
JOBS = """
CREATE TABLE jobs (
    id      TEXT PRIMARY KEY,
    agent   TEXT NOT NULL,
    body    TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    next_at TEXT
)
"""
JOBS_DUE = "CREATE INDEX jobs_due ON jobs (next_at) WHERE enabled"

# Every run of a job, until it is old.
JOB_RUNS = """
CREATE TABLE job_runs (
    run        TEXT PRIMARY KEY,
    job        TEXT NOT NULL,
    slot       TEXT NOT NULL,
    reason     TEXT NOT NULL,
    started_at TEXT NOT NULL,
    ended_at   TEXT,
    outcome    TEXT NOT NULL,
    summary    TEXT NOT NULL
)
"""
JOB_RUNS_BY_JOB = "CREATE INDEX job_runs_by_job ON job_runs (job, started_at)"

# Lines that came from outside, by the hash of each, in the file that a tool was about to write them into.
WRITTEN_LINES = """
CREATE TABLE written_lines (
    agent      TEXT NOT NULL,
    path       TEXT NOT NULL,
    line       BLOB NOT NULL,
    origin     TEXT NOT NULL,
    session    TEXT NOT NULL,
    written_at TEXT NOT NULL,
    PRIMARY KEY (agent, path, line)
) WITHOUT ROWID
"""

# What is to leave for a chat, until the other side confirmed it. `run` is the message of the inbox that it answers.
OUTBOX = """
CREATE TABLE outbox (
    id       INTEGER PRIMARY KEY,
    key      TEXT NOT NULL UNIQUE,
    channel  TEXT NOT NULL,
    account  TEXT NOT NULL,
    chat     TEXT NOT NULL,
    run      TEXT,
    body     TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    due_at   TEXT NOT NULL,
    state    TEXT NOT NULL CHECK (state IN ('waiting', 'sent', 'failed')),
    error    TEXT
)
"""
OUTBOX_WAITING = "CREATE INDEX outbox_waiting ON outbox (channel, account, chat, id) WHERE state = 'waiting'"
OUTBOX_BY_RUN = "CREATE INDEX outbox_by_run ON outbox (run)"

# The channel and account that brought a message, as `http/office`; its answer leaves the same way.
INBOX_ACCOUNT = "ALTER TABLE inbox ADD COLUMN account TEXT"
INBOX_FOR_CHATS = """
CREATE INDEX inbox_for_chats ON inbox (account) WHERE result IS NOT NULL AND delivered_at IS NULL
"""

# Sub-agents, from the moment they are started; `body` is the child, the result included.
CHILDREN = """
CREATE TABLE children (
    run      TEXT PRIMARY KEY,
    parent   TEXT NOT NULL,
    session  TEXT NOT NULL,
    state    TEXT NOT NULL,
    asked_at TEXT NOT NULL,
    ended_at TEXT,
    told_at  TEXT,
    body     TEXT NOT NULL
)
"""
CHILDREN_BY_PARENT = "CREATE INDEX children_by_parent ON children (parent, asked_at)"

# Every wake of an agent by its heartbeat, and what came of it.
HEARTBEATS = """
CREATE TABLE heartbeats (
    id      INTEGER PRIMARY KEY,
    agent   TEXT NOT NULL,
    at      TEXT NOT NULL,
    wake    TEXT NOT NULL,
    outcome TEXT NOT NULL,
    detail  TEXT NOT NULL,
    digest  TEXT NOT NULL,
    tokens  INTEGER NOT NULL
)
"""
HEARTBEATS_BY_AGENT = "CREATE INDEX heartbeats_by_agent ON heartbeats (agent, at)"

# Devices that ask to be let in, as long as their connections wait; the code is on the device's screen.
PAIRING_REQUESTS = """
CREATE TABLE pairing_requests (
    id         TEXT PRIMARY KEY,
    code       TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    platform   TEXT NOT NULL,
    address    TEXT NOT NULL,
    asked_at   TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'rejected')),
    scopes     TEXT NOT NULL DEFAULT ''
)
"""

# What waits for an agent's next heartbeat, and until it is old, that it was read.
AGENDA = """
CREATE TABLE agenda (
    id        INTEGER PRIMARY KEY,
    agent     TEXT NOT NULL,
    at        TEXT NOT NULL,
    text      TEXT NOT NULL,
    "foreign" INTEGER NOT NULL,
    token     TEXT UNIQUE,
    read_at   TEXT
)
"""
AGENDA_WAITING = "CREATE INDEX agenda_waiting ON agenda (agent) WHERE read_at IS NULL"

# Webhooks whose answers are still to be brought somewhere; `body` says where.
HOOK_RUNS = """
CREATE TABLE hook_runs (
    run         TEXT PRIMARY KEY,
    body        TEXT NOT NULL,
    accepted_at TEXT NOT NULL
)
"""

STATE_SCHEMA: Schema = (
    (INBOX, INBOX_BY_SESSION, INBOX_BY_TURN, INBOX_UNDELIVERED),
    (INBOX_ATTEMPTS,),
    (APPROVALS, APPROVALS_PENDING, APPROVERS, COMMAND_RULES, RULE_USES),
    (GATEWAY_TOKENS, PAIRING_CODES),
    (JOBS, JOBS_DUE, JOB_RUNS, JOB_RUNS_BY_JOB),
    (WRITTEN_LINES,),
    (OUTBOX, OUTBOX_WAITING, OUTBOX_BY_RUN, INBOX_ACCOUNT, INBOX_FOR_CHATS),
    (CHILDREN, CHILDREN_BY_PARENT),
    (HEARTBEATS, HEARTBEATS_BY_AGENT),
    (PAIRING_REQUESTS,),
    (AGENDA, AGENDA_WAITING, HOOK_RUNS),
)
