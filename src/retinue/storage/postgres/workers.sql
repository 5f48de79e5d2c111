-- name: register
INSERT INTO worker (team, name, role, host, pid, address, version, started_at)
VALUES (%(team)s, %(name)s, %(role)s, %(host)s, %(pid)s, %(address)s, %(version)s, now())
ON CONFLICT (team, name) DO UPDATE SET role = excluded.role, address = excluded.address

-- name: forget
DELETE FROM worker WHERE team = %(team)s AND name = %(name)s

-- name: sweep
-- Workers that ended without saying so, and leases of processes that nobody will take again.
WITH gone AS (
    DELETE FROM worker w WHERE team = %(team)s AND started_at < now() - interval '1 minute'
      AND NOT EXISTS (SELECT FROM live_lease l WHERE l.team = w.team AND l.name = 'worker:' || w.name)
)
DELETE FROM lease l WHERE team = %(team)s AND (name LIKE 'worker:%%' OR name LIKE 'presence:%%')
  AND NOT EXISTS (SELECT FROM live_lease v WHERE v.team = l.team AND v.name = l.name)

-- name: workers
SELECT w.name, w.role, w.host, w.pid, w.address, w.version, w.started_at,
       (SELECT count(*) FROM live_lease s WHERE s.team = w.team AND s.owner = l.owner AND s.name LIKE 'agent:%%'),
       EXISTS (SELECT FROM live_lease a WHERE a.team = w.team AND a.owner = l.owner AND a.name = 'automation')
FROM worker w JOIN live_lease l ON l.team = w.team AND l.name = 'worker:' || w.name
WHERE w.team = %(team)s ORDER BY w.started_at, w.name

-- name: leases
SELECT l.name, w.name, l.epoch, extract(epoch FROM l.expires - now())::float8
FROM live_lease l LEFT JOIN live_lease o ON o.team = l.team AND o.owner = l.owner AND o.name LIKE 'worker:%%'
LEFT JOIN worker w ON w.team = l.team AND o.name = 'worker:' || w.name
WHERE l.team = %(team)s AND l.name NOT LIKE 'worker:%%' AND l.name NOT LIKE 'presence:%%' ORDER BY l.name

-- name: queues
SELECT state, count(*), coalesce(extract(epoch FROM now() - min(accepted_at)::timestamptz), 0)::float8
FROM inbox WHERE team = %(team)s AND state IN ('waiting', 'claimed') GROUP BY state

-- name: free_sessions
-- Sessions with unanswered messages that no live process works on, the longest waiting first.
SELECT session FROM inbox i WHERE team = %(team)s AND state IN ('waiting', 'claimed')
  AND NOT EXISTS (SELECT FROM live_lease l WHERE l.team = i.team AND l.name = i.session)
GROUP BY session ORDER BY min(id) LIMIT %(limit)s

-- name: is_live
SELECT EXISTS (SELECT FROM live_lease WHERE team = %(team)s AND name = %(name)s)

-- name: is_mine
SELECT EXISTS (
    SELECT FROM lease
    WHERE team = %(team)s AND name = %(name)s AND owner = %(owner)s AND epoch = %(epoch)s AND expires >= now())
