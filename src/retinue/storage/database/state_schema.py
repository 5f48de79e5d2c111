"""The tables of `state.sqlite`, version by version.

A version is a tuple of statements, applied once and in order. Never edit a released version: add a new version at the
end.
"""

from __future__ import annotations

Schema = tuple[tuple[str, ...], ...]

# A message from its acceptance until its answer is delivered. The order of `id` is the order of arrival.
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

# Waiting messages of a session, and those that a process claimed before it was killed.
INBOX_BY_SESSION = "CREATE INDEX inbox_by_session ON inbox (session, agent, state)"

# All messages that a turn answers.
INBOX_BY_TURN = "CREATE INDEX inbox_by_turn ON inbox (claimed_into)"

# Answers that were not delivered yet; a partial index.
INBOX_UNDELIVERED = """
CREATE INDEX inbox_undelivered ON inbox (session, agent) WHERE result IS NOT NULL AND delivered_at IS NULL
"""

# How often a turn took the message. A message whose turn ends the process each time is dropped.
INBOX_ATTEMPTS = "ALTER TABLE inbox ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0"

# An approval request, kept after it was answered. `holder` is the process whose call waits for the answer.
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

# Pending approvals; a partial index.
APPROVALS_PENDING = "CREATE INDEX approvals_pending ON approvals (asked_at) WHERE state = 'pending'"

# Processes in which a person can see the approval requests of a session.
APPROVERS = """
CREATE TABLE approvers (
    holder  TEXT NOT NULL,
    agent   TEXT NOT NULL,
    session TEXT NOT NULL,
    PRIMARY KEY (holder, agent, session)
)
"""

# Command patterns that a person allowed permanently, in addition to the configured ones.
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

# The files whose code the command runs, with their hashes, as JSON; null if the pattern holds for any content.
COMMAND_RULE_CONTENT = "ALTER TABLE command_rules ADD COLUMN content TEXT"

# When a pattern last allowed a command, for remembered and configured patterns.
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

# Gateway access tokens. Only the hash of each secret is stored; the secret is random, so one round is enough.
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

# Short-lived one-time codes that a device exchanges for its own token.
PAIRING_CODES = """
CREATE TABLE pairing_codes (
    hash       TEXT PRIMARY KEY,
    scopes     TEXT NOT NULL,
    expires_at TEXT NOT NULL
)
"""

# Scheduled jobs. `body` is the job; the other columns are for finding due jobs.
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

# Every run of a job, until it expires.
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

# Hashes of lines from untrusted sources, per file that a tool was about to write them into.
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

# Files with a label. `lines` is 1 if only the lines in `written_lines` have it. A file that the owner accepted has
# the stamp and the hash of the accepted content.
FILE_LABELS = """
CREATE TABLE file_labels (
    agent    TEXT NOT NULL,
    path     TEXT NOT NULL,
    folder   TEXT NOT NULL,
    origin   TEXT NOT NULL,
    private  INTEGER NOT NULL,
    via      TEXT NOT NULL,
    since    TEXT NOT NULL,
    lines    INTEGER NOT NULL,
    inode    INTEGER NOT NULL DEFAULT 0,
    size     INTEGER NOT NULL DEFAULT 0,
    mtime_ns INTEGER NOT NULL DEFAULT 0,
    ctime_ns INTEGER NOT NULL DEFAULT 0,
    digest   BLOB NOT NULL DEFAULT x'',
    PRIMARY KEY (agent, path)
) WITHOUT ROWID
"""
FILE_LABELS_BY_FOLDER = "CREATE INDEX file_labels_by_folder ON file_labels (agent, folder)"
FILE_LABELS_BY_LABEL = "CREATE INDEX file_labels_by_label ON file_labels (agent, via, origin, private)"
FILE_LABELS_OF_LINES = """
INSERT INTO file_labels (agent, path, folder, origin, private, via, since, lines)
SELECT agent, path, CASE WHEN instr(path, '/') THEN rtrim(rtrim(path, replace(path, '/', '')), '/') ELSE '' END,
       'untrusted', 0, 'tool', max(written_at), 1
FROM written_lines WHERE origin != 'owner' GROUP BY agent, path
"""

# Labels by the time of a file's last change: of files that existed before the workspace was trusted, and of files
# that changed since a command began which has not ended. `process` runs the command.
LABEL_RULES = """
CREATE TABLE label_rules (
    agent   TEXT NOT NULL,
    id      TEXT NOT NULL,
    kind    TEXT NOT NULL,
    process TEXT NOT NULL,
    from_ns INTEGER NOT NULL,
    to_ns   INTEGER NOT NULL,
    origin  TEXT NOT NULL,
    private INTEGER NOT NULL,
    since   TEXT NOT NULL,
    folders TEXT NOT NULL,
    PRIMARY KEY (agent, id)
) WITHOUT ROWID
"""

# Messages to a chat, until the channel confirmed them. `run` is the message of the inbox that it answers.
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

# The channel and account that received a message, as `http/office`; its answer is sent to the same account.
INBOX_ACCOUNT = "ALTER TABLE inbox ADD COLUMN account TEXT"
INBOX_FOR_CHATS = """
CREATE INDEX inbox_for_chats ON inbox (account) WHERE result IS NOT NULL AND delivered_at IS NULL
"""

# Sub-agents, from their start; `body` is the child, including its result.
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

# Every heartbeat of an agent, and its outcome.
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

# Devices that request access, while their connections wait; the code is on the device's screen.
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

# Notices for an agent's next heartbeat, and for a limited time, that they were read.
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

# Webhooks whose answers are not delivered yet; `body` contains the destination.
HOOK_RUNS = """
CREATE TABLE hook_runs (
    run         TEXT PRIMARY KEY,
    body        TEXT NOT NULL,
    accepted_at TEXT NOT NULL
)
"""

# Messages without an answer, of all sessions; a partial index, because almost all messages have one.
INBOX_UNFINISHED = """
CREATE INDEX inbox_unfinished ON inbox (state, session, agent) WHERE state IN ('waiting', 'claimed')
"""

# The last messages of a session. An index ends with the row id, so this is the order of arrival.
INBOX_IN_ORDER = "CREATE INDEX inbox_in_order ON inbox (session, agent)"

# The last messages of a session that came from a chat of a channel.
INBOX_FROM_CHATS = "CREATE INDEX inbox_from_chats ON inbox (session, agent) WHERE account IS NOT NULL"

# Finds the run of a slot.
JOB_RUNS_BY_SLOT = "CREATE INDEX job_runs_by_slot ON job_runs (job, slot)"

# When a gateway first served the heartbeats of an agent: the first heartbeat is due an interval later.
HEARTBEAT_STARTS = """
CREATE TABLE heartbeat_starts (
    agent TEXT PRIMARY KEY,
    at    TEXT NOT NULL
)
"""

# The latest changes of the machine's clock: what it showed before and after each.
CLOCK_JUMPS = """
CREATE TABLE clock_jumps (
    id     INTEGER PRIMARY KEY,
    before TEXT NOT NULL,
    after  TEXT NOT NULL
)
"""

# Webhooks that agents created. A webhook without a token refuses every request.
WEBHOOKS = """
CREATE TABLE webhooks (
    name       TEXT PRIMARY KEY,
    agent      TEXT NOT NULL,
    body       TEXT NOT NULL,
    token_hash TEXT,
    created_at TEXT NOT NULL,
    used_at    TEXT
)
"""

# `tried_at` is set while it is unknown whether the service took the message; `message_id` is the service's id of it.
OUTBOX_TRIED = "ALTER TABLE outbox ADD COLUMN tried_at TEXT"
OUTBOX_MESSAGE = "ALTER TABLE outbox ADD COLUMN message_id TEXT"
OUTBOX_MESSAGES = "CREATE INDEX outbox_messages ON outbox (channel, account, chat, id) WHERE message_id IS NOT NULL"

# How far the updates of an account were accepted, and the state of its listener.
CHANNEL_ACCOUNTS = """
CREATE TABLE channel_accounts (
    channel    TEXT NOT NULL,
    account    TEXT NOT NULL,
    position   TEXT,
    state      TEXT NOT NULL,
    error      TEXT,
    heard_at   TEXT,
    lag_ms     INTEGER,
    changed_at TEXT NOT NULL,
    PRIMARY KEY (channel, account)
)
"""

# People who wrote to the agent without being listed: those who wait for approval, and those who were approved.
CONTACTS = """
CREATE TABLE contacts (
    channel    TEXT NOT NULL,
    sender     TEXT NOT NULL,
    account    TEXT NOT NULL,
    name       TEXT NOT NULL,
    code       TEXT NOT NULL UNIQUE,
    state      TEXT NOT NULL CHECK (state IN ('waiting', 'approved', 'rejected')),
    asked_at   TEXT NOT NULL,
    decided_at TEXT,
    decided_by TEXT,
    PRIMARY KEY (channel, sender)
)
"""

# The message of a chat that shows the beginning of an answer, until the whole answer replaces it.
CHANNEL_PREVIEWS = """
CREATE TABLE channel_previews (run TEXT PRIMARY KEY, message_id TEXT NOT NULL, shown_at TEXT NOT NULL)
"""

# What the agent wrote before its lines were recorded cannot be told from what the owner wrote.
UNRECORDED_LINES = """
INSERT INTO label_rules (agent, id, kind, process, from_ns, to_ns, origin, private, since, folders)
SELECT '', 'unrecorded', 'unrecorded', '', 0, CAST((julianday('now') - 2440587.5) * 86400 AS INTEGER) * 1000000000,
       'agent', 0, strftime('%Y-%m-%dT%H:%M:%S+00:00', 'now'), '[]'
WHERE EXISTS (SELECT 1 FROM inbox)
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
    (INBOX_UNFINISHED, INBOX_IN_ORDER, INBOX_FROM_CHATS),
    (JOB_RUNS_BY_SLOT, HEARTBEAT_STARTS, CLOCK_JUMPS),
    (COMMAND_RULE_CONTENT,),
    (WEBHOOKS,),
    (FILE_LABELS, FILE_LABELS_BY_FOLDER, FILE_LABELS_BY_LABEL, FILE_LABELS_OF_LINES, LABEL_RULES),
    (OUTBOX_TRIED, OUTBOX_MESSAGE, OUTBOX_MESSAGES, CHANNEL_ACCOUNTS, CONTACTS, CHANNEL_PREVIEWS),
    (UNRECORDED_LINES,),
)

JSON_COLUMNS = frozenset(
    {
        "children.body",
        "hook_runs.body",
        "inbox.payload",
        "inbox.result",
        "jobs.body",
        "label_rules.folders",
        "outbox.body",
        "outbox.chat",
        "webhooks.body",
    }
)
"""Columns that contain JSON. A row of a damaged database whose JSON cannot be read is not salvaged."""

MOMENT_COLUMNS = frozenset(
    {
        "agenda.at",
        "agenda.read_at",
        "approvals.asked_at",
        "approvals.decided_at",
        "approvals.expires_at",
        "channel_accounts.changed_at",
        "channel_accounts.heard_at",
        "channel_previews.shown_at",
        "children.asked_at",
        "children.ended_at",
        "children.told_at",
        "clock_jumps.after",
        "clock_jumps.before",
        "command_rules.added_at",
        "contacts.asked_at",
        "contacts.decided_at",
        "file_labels.since",
        "gateway_tokens.created_at",
        "gateway_tokens.expires_at",
        "gateway_tokens.revoked_at",
        "gateway_tokens.used_at",
        "heartbeat_starts.at",
        "heartbeats.at",
        "hook_runs.accepted_at",
        "inbox.accepted_at",
        "inbox.delivered_at",
        "job_runs.ended_at",
        "job_runs.slot",
        "job_runs.started_at",
        "jobs.next_at",
        "label_rules.since",
        "outbox.due_at",
        "outbox.tried_at",
        "pairing_codes.expires_at",
        "pairing_requests.asked_at",
        "pairing_requests.expires_at",
        "rule_uses.used_at",
        "webhooks.created_at",
        "webhooks.used_at",
        "written_lines.written_at",
    }
)
"""Columns that contain a time. A row of a damaged database with an invalid time is not salvaged."""

RESTORED_TABLES = frozenset(
    {
        "approvals",
        "clock_jumps",
        "command_rules",
        "contacts",
        "file_labels",
        "gateway_tokens",
        "heartbeat_starts",
        "heartbeats",
        "job_runs",
        "jobs",
        "label_rules",
        "rule_uses",
        "webhooks",
        "written_lines",
    }
)
"""Tables whose unreadable rows are restored from the last verified copy.

The other tables contain what is in progress: messages, answers and webhooks that are not delivered yet, sub-agents,
notices, one-time codes. Their old rows would repeat an effect.
"""
