-- The audit log of each team. The hash of an entry covers a digest of its content and not the content, so that the content
-- can be erased and the chain stays valid. Entries are only added: there is no policy for changes, except for an erasure
-- and the deletion of old entries, which a transaction has to announce.
CREATE TABLE team_audit (
    team text NOT NULL REFERENCES team ON DELETE CASCADE,
    n bigint NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL,
    who text,
    details text,
    salt text,
    digest text NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    PRIMARY KEY (team, n)
);
CREATE INDEX team_audit_by_time ON team_audit (team, at);

-- The number and hash of the last entry; a shorter log was truncated.
CREATE TABLE team_audit_head (
    team text PRIMARY KEY REFERENCES team ON DELETE CASCADE,
    n bigint NOT NULL,
    hash text NOT NULL
);

-- How far the log of each home was copied.
CREATE TABLE team_audit_source (
    team text NOT NULL REFERENCES team ON DELETE CASCADE,
    source text NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (team, source)
);

DO $$
DECLARE
    name text;
    own text := 'team = nullif(current_setting(''app.team'', true), '''')';
BEGIN
    FOREACH name IN ARRAY ARRAY['team_audit', 'team_audit_head', 'team_audit_source']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    END LOOP;
    EXECUTE format('CREATE POLICY own_team ON team_audit_head USING (%1$s) WITH CHECK (%1$s)', own);
    EXECUTE format('CREATE POLICY own_team ON team_audit_source USING (%1$s) WITH CHECK (%1$s)', own);
    EXECUTE format('CREATE POLICY read_own ON team_audit FOR SELECT USING (%s)', own);
    EXECUTE format('CREATE POLICY add_own ON team_audit FOR INSERT WITH CHECK (%s)', own);
    EXECUTE format(
        'CREATE POLICY erase_own ON team_audit FOR UPDATE USING (%1$s AND current_setting(''app.audit'', true) = ''erase'') '
        'WITH CHECK (%1$s AND who IS NULL AND details IS NULL AND salt IS NULL)', own);
    EXECUTE format(
        'CREATE POLICY prune_own ON team_audit FOR DELETE USING (%1$s AND current_setting(''app.audit'', true) = ''prune'')', own);
END
$$;
