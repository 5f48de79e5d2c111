-- name: number_owner
SELECT nextval('lease_owner')

-- name: show_presence
SELECT pg_try_advisory_lock(%(class)s, %(owner)s)

-- name: take
-- A lease that nobody has, whose owner does not renew it, or whose owner's process has ended.
INSERT INTO lease AS held (team, name, owner, epoch, expires)
VALUES (%(team)s, %(name)s, %(owner)s, 1, now() + make_interval(secs => %(seconds)s))
ON CONFLICT (team, name) DO UPDATE
SET owner = excluded.owner, epoch = held.epoch + 1, expires = excluded.expires, stop = NULL
WHERE held.owner IS NULL OR held.owner = excluded.owner OR held.expires < now() OR NOT EXISTS (
    SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted
      AND l.classid = %(class)s AND l.objid = held.owner AND l.objsubid = 2
)
RETURNING epoch

-- name: renew
UPDATE lease SET expires = now() + make_interval(secs => %(seconds)s)
WHERE team = %(team)s AND owner = %(owner)s AND name = ANY(%(names)s)

-- name: release
UPDATE lease SET owner = NULL, expires = '-infinity', stop = NULL
WHERE team = %(team)s AND name = %(name)s AND owner = %(owner)s AND epoch = %(epoch)s

-- name: ask_to_stop
UPDATE lease SET stop = epoch
WHERE team = %(team)s AND name = %(name)s AND owner IS NOT NULL AND expires >= now() AND EXISTS (
    SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted
      AND l.classid = %(class)s AND l.objid = lease.owner AND l.objsubid = 2
)
RETURNING pg_notify('retinue_lease', owner || ' ' || name)

-- name: take_stop
UPDATE lease SET stop = NULL
WHERE team = %(team)s AND name = %(name)s AND owner = %(owner)s AND epoch = %(epoch)s AND stop = epoch
RETURNING 1

-- name: wake
SELECT pg_notify('retinue_lease', %(owner)s::text)
