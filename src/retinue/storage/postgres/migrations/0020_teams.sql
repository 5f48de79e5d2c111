-- Organisations, teams, their members, and how members sign in. A team's rows are visible only while `app.team` names it,
-- for the owner of the tables, too. `app.operator` shows the names of all teams, and nothing else of them.
CREATE TABLE organisation (
    id text PRIMARY KEY CHECK (id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    name text NOT NULL,
    created_at timestamptz NOT NULL
);

CREATE TABLE team (
    id text PRIMARY KEY CHECK (id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    organisation text NOT NULL REFERENCES organisation,
    name text NOT NULL,
    created_at timestamptz NOT NULL
);

-- A person or a service account. `login` is an e-mail address or the name of the service account, in lower case.
CREATE TABLE team_member (
    team text NOT NULL REFERENCES team ON DELETE CASCADE,
    id text NOT NULL,
    login text NOT NULL CHECK (login = lower(login)),
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('owner', 'admin', 'operator', 'member', 'viewer', 'service')),
    password text,
    issuer text,
    subject text,
    created_at timestamptz NOT NULL,
    seen_at timestamptz,
    deactivated_at timestamptz,
    PRIMARY KEY (team, id),
    UNIQUE (team, login),
    UNIQUE (team, issuer, subject)
);

-- A role for one agent, in place of the member's role in the team.
CREATE TABLE team_agent_role (
    team text NOT NULL,
    member text NOT NULL,
    agent text NOT NULL,
    role text NOT NULL CHECK (role IN ('operator', 'member', 'viewer')),
    PRIMARY KEY (team, member, agent),
    FOREIGN KEY (team, member) REFERENCES team_member ON DELETE CASCADE
);

CREATE TABLE team_invitation (
    team text NOT NULL REFERENCES team ON DELETE CASCADE,
    id text NOT NULL,
    hash text NOT NULL,
    login text NOT NULL CHECK (login = lower(login)),
    role text NOT NULL CHECK (role IN ('owner', 'admin', 'operator', 'member', 'viewer')),
    invited_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    PRIMARY KEY (team, id)
);

-- What a client presents: the sign-in of a browser or a command line, or the token of a service account. `scopes` limits
-- those of the member's role. `renewal` is the encrypted refresh token of the identity provider.
CREATE TABLE team_access (
    team text NOT NULL,
    id text NOT NULL,
    member text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('password', 'provider', 'device', 'service')),
    hash text NOT NULL,
    client text NOT NULL,
    scopes text[],
    created_at timestamptz NOT NULL,
    used_at timestamptz NOT NULL,
    expires_at timestamptz,
    ended_at timestamptz,
    renewal bytea,
    renew_at timestamptz,
    PRIMARY KEY (team, id),
    FOREIGN KEY (team, member) REFERENCES team_member ON DELETE CASCADE
);
CREATE INDEX team_access_by_member ON team_access (team, member) WHERE ended_at IS NULL;

-- Sign-ins that have begun: at an identity provider (`browser`), or on another device (`device`). Each is used once.
CREATE TABLE team_sign_in (
    team text NOT NULL REFERENCES team ON DELETE CASCADE,
    hash text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('browser', 'device')),
    code text,
    client text NOT NULL,
    nonce text,
    verifier text,
    member text,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (team, hash),
    UNIQUE (team, code),
    FOREIGN KEY (team, member) REFERENCES team_member ON DELETE CASCADE
);

CREATE TABLE team_secret (
    team text NOT NULL REFERENCES team ON DELETE CASCADE,
    name text NOT NULL,
    sealed bytea NOT NULL,
    changed_by text NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (team, name)
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['team_member', 'team_agent_role', 'team_invitation', 'team_access', 'team_sign_in', 'team_secret']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY own_team ON %I USING (team = nullif(current_setting(''app.team'', true), '''')) '
            'WITH CHECK (team = nullif(current_setting(''app.team'', true), ''''))',
            name
        );
    END LOOP;
END
$$;

ALTER TABLE team ENABLE ROW LEVEL SECURITY;
ALTER TABLE team FORCE ROW LEVEL SECURITY;
CREATE POLICY own_team ON team FOR SELECT USING (id = nullif(current_setting('app.team', true), ''));
CREATE POLICY operator ON team
    USING (current_setting('app.operator', true) = 'on') WITH CHECK (current_setting('app.operator', true) = 'on');

ALTER TABLE organisation ENABLE ROW LEVEL SECURITY;
ALTER TABLE organisation FORCE ROW LEVEL SECURITY;
CREATE POLICY own_team ON organisation FOR SELECT USING (id IN (SELECT organisation FROM team));
CREATE POLICY operator ON organisation
    USING (current_setting('app.operator', true) = 'on') WITH CHECK (current_setting('app.operator', true) = 'on');
