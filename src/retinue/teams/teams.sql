-- name: become
SELECT set_config('app.team', %(team)s, true)

-- name: become_operator
SELECT set_config('app.operator', 'on', true)

-- name: find_bypass
SELECT rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)

-- name: add_organisation
INSERT INTO organisation (id, name, created_at) VALUES (%(id)s, %(name)s, %(now)s) ON CONFLICT (id) DO NOTHING

-- name: add_team
INSERT INTO team (id, organisation, name, created_at) VALUES (%(id)s, %(organisation)s, %(name)s, %(now)s)
ON CONFLICT (id) DO NOTHING RETURNING id

-- name: list_teams
SELECT t.id, t.name, t.organisation, o.name AS organisation_name, t.created_at
FROM team t JOIN organisation o ON o.id = t.organisation ORDER BY t.organisation, t.id

-- name: find_team
SELECT t.id, t.name, t.organisation, o.name AS organisation_name, t.created_at
FROM team t JOIN organisation o ON o.id = t.organisation WHERE t.id = %(id)s

-- name: list_members
SELECT m.id, m.login, m.name, m.role, m.password IS NOT NULL AS has_password, m.issuer, m.subject, m.created_at,
    m.seen_at, m.deactivated_at,
    coalesce((SELECT jsonb_object_agg(r.agent, r.role) FROM team_agent_role r
        WHERE r.team = m.team AND r.member = m.id), '{}') AS agents
FROM team_member m WHERE m.team = %(team)s
    AND (%(id)s::text IS NULL OR m.id = %(id)s)
    AND (%(login)s::text IS NULL OR m.login = lower(%(login)s))
    AND (%(issuer)s::text IS NULL OR (m.issuer = %(issuer)s AND m.subject = %(subject)s))
ORDER BY m.created_at, m.id

-- name: read_password
SELECT password FROM team_member WHERE team = %(team)s AND id = %(id)s

-- name: add_member
INSERT INTO team_member (team, id, login, name, role, password, issuer, subject, created_at)
VALUES (%(team)s, %(id)s, %(login)s, %(name)s, %(role)s, %(password)s, %(issuer)s, %(subject)s, %(now)s)
ON CONFLICT DO NOTHING RETURNING id

-- name: link_member
UPDATE team_member SET issuer = %(issuer)s, subject = %(subject)s WHERE team = %(team)s AND id = %(id)s

-- name: lock_owners
SELECT id FROM team_member WHERE team = %(team)s AND role = 'owner' AND deactivated_at IS NULL FOR UPDATE

-- name: set_role
UPDATE team_member SET role = %(role)s WHERE team = %(team)s AND id = %(id)s

-- name: set_agent_role
INSERT INTO team_agent_role (team, member, agent, role) VALUES (%(team)s, %(id)s, %(agent)s, %(role)s)
ON CONFLICT (team, member, agent) DO UPDATE SET role = excluded.role

-- name: drop_agent_role
DELETE FROM team_agent_role WHERE team = %(team)s AND member = %(id)s AND agent = %(agent)s

-- name: set_password
UPDATE team_member SET password = %(password)s WHERE team = %(team)s AND id = %(id)s

-- name: set_deactivated
UPDATE team_member SET deactivated_at = %(at)s WHERE team = %(team)s AND id = %(id)s

-- name: record_seen
UPDATE team_member SET seen_at = %(now)s WHERE team = %(team)s AND id = %(id)s

-- name: add_invitation
INSERT INTO team_invitation (team, id, hash, login, role, invited_by, created_at, expires_at)
VALUES (%(team)s, %(id)s, %(hash)s, %(login)s, %(role)s, %(by)s, %(now)s, %(expires)s)

-- name: list_invitations
SELECT id, login, role, invited_by, created_at, expires_at FROM team_invitation
WHERE team = %(team)s AND used_at IS NULL AND expires_at > %(now)s ORDER BY created_at, id

-- name: find_invitation
SELECT id, login, role, invited_by, created_at, expires_at, hash FROM team_invitation
WHERE team = %(team)s AND id = %(id)s AND used_at IS NULL AND expires_at > %(now)s

-- name: find_invitation_for
SELECT id, role FROM team_invitation
WHERE team = %(team)s AND login = %(login)s AND used_at IS NULL AND expires_at > %(now)s ORDER BY created_at DESC LIMIT 1

-- name: use_invitation
UPDATE team_invitation SET used_at = %(now)s WHERE team = %(team)s AND id = %(id)s AND used_at IS NULL RETURNING id

-- name: add_access
INSERT INTO team_access (team, id, member, kind, hash, client, scopes, created_at, used_at, expires_at, renewal, renew_at)
VALUES (%(team)s, %(id)s, %(member)s, %(kind)s, %(hash)s, %(client)s, %(scopes)s, %(now)s, %(now)s, %(expires)s,
    %(renewal)s, %(renew_at)s)

-- name: find_access
SELECT a.id, a.member, a.kind, a.hash, a.client, a.scopes, a.created_at, a.used_at, a.expires_at, a.ended_at, a.renew_at
FROM team_access a WHERE a.team = %(team)s AND a.id = ANY(%(ids)s)

-- name: list_access
SELECT a.id, a.member, a.kind, a.hash, a.client, a.scopes, a.created_at, a.used_at, a.expires_at, a.ended_at, a.renew_at
FROM team_access a WHERE a.team = %(team)s AND a.member = %(member)s AND a.ended_at IS NULL ORDER BY a.created_at, a.id

-- name: use_access
UPDATE team_access SET used_at = %(now)s WHERE team = %(team)s AND id = ANY(%(ids)s) AND ended_at IS NULL

-- name: end_access
UPDATE team_access SET ended_at = %(now)s WHERE team = %(team)s AND id = %(id)s AND ended_at IS NULL RETURNING id

-- name: end_all_access
UPDATE team_access SET ended_at = %(now)s
WHERE team = %(team)s AND member = %(member)s AND ended_at IS NULL AND kind <> ALL(%(kept)s)

-- name: claim_renewal
-- One gateway renews an access; the others see that its time has moved.
UPDATE team_access SET renew_at = %(later)s
WHERE team = %(team)s AND id = %(id)s AND ended_at IS NULL AND renew_at <= %(now)s RETURNING renewal

-- name: list_due
SELECT id, member FROM team_access WHERE team = %(team)s AND ended_at IS NULL AND renew_at <= %(now)s LIMIT 50

-- name: store_renewal
UPDATE team_access SET renewal = %(renewal)s WHERE team = %(team)s AND id = %(id)s AND ended_at IS NULL

-- name: delete_old_access
DELETE FROM team_access WHERE team = %(team)s AND coalesce(ended_at, expires_at) < %(before)s

-- name: delete_old_sign_ins
DELETE FROM team_sign_in WHERE team = %(team)s AND expires_at <= %(now)s

-- name: make_room
DELETE FROM team_sign_in WHERE team = %(team)s AND hash IN (
    SELECT hash FROM team_sign_in WHERE team = %(team)s AND kind = %(kind)s
    ORDER BY member IS NOT NULL DESC, created_at DESC, hash OFFSET %(keep)s)

-- name: add_sign_in
INSERT INTO team_sign_in (team, hash, kind, code, client, nonce, verifier, created_at, expires_at)
VALUES (%(team)s, %(hash)s, %(kind)s, %(code)s, %(client)s, %(nonce)s, %(verifier)s, %(now)s, %(expires)s)

-- name: take_sign_in
DELETE FROM team_sign_in WHERE team = %(team)s AND hash = %(hash)s AND kind = 'browser' AND expires_at > %(now)s
RETURNING nonce, verifier

-- name: find_device
SELECT client, created_at, expires_at FROM team_sign_in
WHERE team = %(team)s AND kind = 'device' AND code = %(code)s AND member IS NULL AND expires_at > %(now)s

-- name: approve_device
UPDATE team_sign_in SET member = %(member)s
WHERE team = %(team)s AND kind = 'device' AND code = %(code)s AND member IS NULL AND expires_at > %(now)s
RETURNING client

-- name: poll_device
SELECT member FROM team_sign_in
WHERE team = %(team)s AND kind = 'device' AND hash = %(hash)s AND expires_at > %(now)s

-- name: claim_device
DELETE FROM team_sign_in
WHERE team = %(team)s AND kind = 'device' AND hash = %(hash)s AND member IS NOT NULL AND expires_at > %(now)s
RETURNING member, client

-- name: set_secret
INSERT INTO team_secret (team, name, sealed, changed_by, changed_at)
VALUES (%(team)s, %(name)s, %(sealed)s, %(by)s, %(now)s)
ON CONFLICT (team, name) DO UPDATE SET sealed = excluded.sealed, changed_by = excluded.changed_by,
    changed_at = excluded.changed_at

-- name: read_secret
SELECT sealed FROM team_secret WHERE team = %(team)s AND name = %(name)s

-- name: list_secrets
SELECT name, changed_by, changed_at FROM team_secret WHERE team = %(team)s ORDER BY name

-- name: read_secrets
SELECT name, sealed FROM team_secret WHERE team = %(team)s FOR UPDATE

-- name: reseal_secret
UPDATE team_secret SET sealed = %(sealed)s WHERE team = %(team)s AND name = %(name)s

-- name: delete_secret
DELETE FROM team_secret WHERE team = %(team)s AND name = %(name)s RETURNING name

-- name: read_audit_source
SELECT n FROM team_audit_source WHERE team = %(team)s AND source = %(source)s

-- name: set_audit_source
INSERT INTO team_audit_source (team, source, n) VALUES (%(team)s, %(source)s, %(n)s)
ON CONFLICT (team, source) DO UPDATE SET n = excluded.n WHERE team_audit_source.n < excluded.n RETURNING n

-- name: begin_audit
INSERT INTO team_audit_head (team, n, hash) VALUES (%(team)s, 0, %(first)s) ON CONFLICT (team) DO NOTHING

-- name: lock_audit_head
-- One transaction appends at a time.
SELECT n, hash FROM team_audit_head WHERE team = %(team)s FOR UPDATE

-- name: set_audit_head
UPDATE team_audit_head SET n = %(n)s, hash = %(hash)s WHERE team = %(team)s

-- name: add_audit
INSERT INTO team_audit (team, n, at, kind, who, details, salt, digest, previous, hash)
VALUES (%(team)s, %(n)s, %(at)s, %(kind)s, %(who)s, %(details)s, %(salt)s, %(digest)s, %(previous)s, %(hash)s)

-- name: read_audit_head
SELECT n, hash FROM team_audit_head WHERE team = %(team)s

-- name: list_audit
SELECT n, at, kind, who, details, salt, digest, previous, hash FROM team_audit
WHERE team = %(team)s AND n > %(after)s ORDER BY n LIMIT %(limit)s

-- name: search_audit
SELECT n, at, kind, who, details, salt, digest, previous, hash FROM team_audit
WHERE team = %(team)s
    AND (%(kind)s::text IS NULL OR kind = %(kind)s)
    AND (%(since)s::timestamptz IS NULL OR at >= %(since)s)
    AND (%(text)s::text IS NULL OR strpos(lower(coalesce(who, '') || ' ' || coalesce(details, '')), lower(%(text)s)) > 0)
ORDER BY n DESC LIMIT %(limit)s

-- name: announce_audit
SELECT set_config('app.audit', %(what)s, true)

-- name: find_audit_of
SELECT n FROM team_audit WHERE team = %(team)s AND kind <> 'member_erased' AND salt IS NOT NULL
    -- Escapes of JSON are no letters before a word.
    AND lower(coalesce(who, '') || ' ' || regexp_replace(coalesce(details, ''), '\\(u....|.)', ' ', 'g'))
        ~ ANY(%(patterns)s::text[])
ORDER BY n

-- name: erase_audit
UPDATE team_audit SET who = NULL, details = NULL, salt = NULL WHERE team = %(team)s AND n = ANY(%(numbers)s)

-- name: find_prunable
SELECT n, hash FROM team_audit WHERE team = %(team)s AND at < %(before)s
    AND n < (SELECT n FROM team_audit_head WHERE team = %(team)s)
ORDER BY n DESC LIMIT 1

-- name: prune_audit
DELETE FROM team_audit WHERE team = %(team)s AND n <= %(n)s

-- name: erase_member
UPDATE team_member SET login = 'erased-' || id, name = 'erased', password = NULL, issuer = NULL, subject = NULL,
    seen_at = NULL, deactivated_at = coalesce(deactivated_at, %(now)s)
WHERE team = %(team)s AND id = %(id)s

-- name: delete_access_of
DELETE FROM team_access WHERE team = %(team)s AND member = %(id)s

-- name: delete_invitations_of
DELETE FROM team_invitation WHERE team = %(team)s AND login = lower(%(login)s)
