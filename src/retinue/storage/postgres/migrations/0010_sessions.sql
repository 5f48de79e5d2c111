-- The right to work on something, such as the turns of a session. `owner` is the number of a process, which holds the
-- advisory lock of that number as long as it lives. `epoch` grows with each new owner; writes name the epoch they belong
-- to. `stop` is the epoch whose owner was asked to end its turn.
CREATE SEQUENCE lease_owner AS int CYCLE;
CREATE TABLE lease (
    team text NOT NULL,
    name text NOT NULL,
    owner int,
    epoch bigint NOT NULL,
    expires timestamptz NOT NULL,
    stop bigint,
    PRIMARY KEY (team, name)
);
CREATE INDEX lease_by_owner ON lease (owner) WHERE owner IS NOT NULL;

-- A transcript. `summary` is what lists show of it, up to the entry `last_seq`; `size` counts the bytes that a file with
-- the same content would have. `archived` says why it was put away.
CREATE TABLE session (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team text NOT NULL,
    agent text NOT NULL,
    id text NOT NULL,
    key text NOT NULL,
    header json NOT NULL,
    summary json NOT NULL,
    last_seq bigint NOT NULL,
    size bigint NOT NULL,
    started_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    archived text,
    archived_at timestamptz
);
CREATE UNIQUE INDEX session_by_key ON session (team, agent, key) WHERE archived IS NULL;
CREATE UNIQUE INDEX session_by_id ON session (team, agent, id) WHERE archived IS NULL;
CREATE INDEX session_archived ON session (team, agent, id) WHERE archived IS NOT NULL;

-- The entries of a transcript. `body` is the line of a file, unchanged: the type jsonb would reorder keys, and so change
-- the requests to models, and refuses some characters. `words` is what a search reads, `tool` names a started call.
CREATE TABLE session_entry (
    team text NOT NULL,
    session bigint NOT NULL REFERENCES session ON DELETE CASCADE,
    seq bigint NOT NULL,
    id text NOT NULL,
    parent text,
    kind text NOT NULL,
    at timestamptz NOT NULL,
    body json NOT NULL,
    words text,
    tool text,
    PRIMARY KEY (session, seq)
);
CREATE INDEX session_entry_tool ON session_entry (team, at) WHERE tool IS NOT NULL;

-- The usage of answers. It stays if the transcript is deleted.
CREATE TABLE session_usage (
    team text NOT NULL,
    agent text NOT NULL,
    session text NOT NULL,
    entry text NOT NULL,
    key text NOT NULL,
    at timestamptz NOT NULL,
    model text NOT NULL,
    source text NOT NULL,
    run text,
    input bigint NOT NULL,
    output bigint NOT NULL,
    cache_read bigint NOT NULL,
    cache_write bigint NOT NULL,
    cost double precision NOT NULL,
    PRIMARY KEY (team, agent, session, entry)
);
CREATE INDEX session_usage_by_time ON session_usage (team, agent, at);

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['lease', 'session', 'session_entry', 'session_usage'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY team ON %I USING (team = nullif(current_setting(''app.team'', true), '''')) '
            'WITH CHECK (team = nullif(current_setting(''app.team'', true), ''''))', name);
    END LOOP;
END $$;

-- For analytics: tokens and cost, and calls of tools, by agent and day (UTC). They show the rows of one's own team.
CREATE VIEW usage_by_day WITH (security_invoker = true) AS
SELECT team, agent, (at AT TIME ZONE 'UTC')::date AS day, model, source, count(*) AS answers, sum(input) AS input,
       sum(output) AS output, sum(cache_read) AS cache_read, sum(cache_write) AS cache_write, sum(cost) AS cost
FROM session_usage GROUP BY team, agent, day, model, source;

CREATE VIEW tools_by_day WITH (security_invoker = true) AS
SELECT e.team, s.agent, (e.at AT TIME ZONE 'UTC')::date AS day, e.tool, count(*) AS calls
FROM session_entry e JOIN session s ON s.number = e.session
WHERE e.tool IS NOT NULL GROUP BY e.team, s.agent, day, e.tool;
