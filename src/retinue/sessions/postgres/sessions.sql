-- name: find
SELECT number, key, header::text, summary::text, last_seq FROM session
WHERE team = %(team)s AND agent = %(agent)s AND key = %(key)s AND archived IS NULL

-- name: find_id
SELECT number, key, header::text, summary::text, last_seq FROM session
WHERE team = %(team)s AND agent = %(agent)s AND id = %(id)s AND archived IS NULL

-- name: list
SELECT number, key, header::text, summary::text, last_seq FROM session
WHERE team = %(team)s AND agent = %(agent)s AND archived IS NULL

-- name: exists
SELECT EXISTS (SELECT FROM session WHERE team = %(team)s AND agent = %(agent)s)

-- name: create
-- A session and its first entries. There is no row if the key or the id has a session, or if the fence is lost.
WITH fence AS (
    SELECT FROM lease WHERE team = %(team)s AND name = %(fence)s AND owner = %(owner)s AND epoch = %(epoch)s FOR SHARE
), head AS (
    INSERT INTO session (team, agent, id, key, header, summary, last_seq, size, started_at, updated_at, archived,
                         archived_at)
    SELECT %(team)s, %(agent)s, %(id)s, %(key)s, %(header)s::json, %(summary)s::json, %(last_seq)s, %(size)s,
           %(started_at)s, %(updated_at)s, %(archived)s::text, %(archived_at)s::timestamptz
    WHERE %(fence)s::text IS NULL OR EXISTS (SELECT FROM fence)
    ON CONFLICT DO NOTHING RETURNING number
), counted AS (
    INSERT INTO session_usage
    SELECT %(team)s, %(agent)s, %(id)s, u.entry, %(key)s, u.at, u.model, u.source, u.run, u.input, u.output,
           u.cache_read, u.cache_write, u.cost
    FROM head, unnest(%(u_entry)s::text[], %(u_at)s::timestamptz[], %(u_model)s::text[], %(u_source)s::text[],
         %(u_run)s::text[], %(u_input)s::bigint[], %(u_output)s::bigint[], %(u_cache_read)s::bigint[],
         %(u_cache_write)s::bigint[], %(u_cost)s::float8[])
         AS u (entry, at, model, source, run, input, output, cache_read, cache_write, cost)
    ON CONFLICT DO NOTHING
), written AS (
    INSERT INTO session_entry
    SELECT %(team)s, head.number, e.seq, e.id, e.parent, e.kind, e.at, e.body::json, e.words, e.tool
    FROM head, unnest(%(seq)s::bigint[], %(entry)s::text[], %(parent)s::text[], %(kind)s::text[],
         %(at)s::timestamptz[], %(body)s::text[], %(words)s::text[], %(tool)s::text[])
         AS e (seq, id, parent, kind, at, body, words, tool)
)
SELECT number FROM head

-- name: extend
-- More entries, if the last one is still the one that this process knows and its lease is still its own. The lease is
-- locked until the commit, so a take-over comes before this write or sees it.
WITH fence AS (
    SELECT FROM lease WHERE team = %(team)s AND name = %(fence)s AND owner = %(owner)s AND epoch = %(epoch)s FOR SHARE
), head AS (
    UPDATE session SET last_seq = %(last_seq)s, size = %(size)s, summary = %(summary)s::json,
                       updated_at = %(updated_at)s
    WHERE number = %(number)s AND last_seq = %(known)s AND (archived IS NULL OR %(adopting)s)
      AND (%(fence)s::text IS NULL OR EXISTS (SELECT FROM fence))
    RETURNING number
), counted AS (
    INSERT INTO session_usage
    SELECT %(team)s, %(agent)s, %(id)s, u.entry, %(key)s, u.at, u.model, u.source, u.run, u.input, u.output,
           u.cache_read, u.cache_write, u.cost
    FROM head, unnest(%(u_entry)s::text[], %(u_at)s::timestamptz[], %(u_model)s::text[], %(u_source)s::text[],
         %(u_run)s::text[], %(u_input)s::bigint[], %(u_output)s::bigint[], %(u_cache_read)s::bigint[],
         %(u_cache_write)s::bigint[], %(u_cost)s::float8[])
         AS u (entry, at, model, source, run, input, output, cache_read, cache_write, cost)
    ON CONFLICT DO NOTHING
), written AS (
    INSERT INTO session_entry
    SELECT %(team)s, head.number, e.seq, e.id, e.parent, e.kind, e.at, e.body::json, e.words, e.tool
    FROM head, unnest(%(seq)s::bigint[], %(entry)s::text[], %(parent)s::text[], %(kind)s::text[],
         %(at)s::timestamptz[], %(body)s::text[], %(words)s::text[], %(tool)s::text[])
         AS e (seq, id, parent, kind, at, body, words, tool)
)
SELECT number FROM head

-- name: why_not
-- What stopped a write: whether it arrived before an answer was lost, the last entry, and whether the fence is lost.
SELECT s.archived IS NOT NULL,
       EXISTS (SELECT FROM session_entry e WHERE e.session = s.number AND e.seq = %(seq)s AND e.id = %(entry)s),
       %(fence)s::text IS NULL OR EXISTS (
           SELECT FROM lease
           WHERE team = %(team)s AND name = %(fence)s AND owner = %(owner)s AND epoch = %(epoch)s)
FROM session s WHERE s.team = %(team)s AND s.number = %(number)s

-- name: has_fence
SELECT FROM lease WHERE team = %(team)s AND name = %(fence)s AND owner = %(owner)s AND epoch = %(epoch)s

-- name: entries_after
SELECT seq, body::text FROM session_entry
WHERE team = %(team)s AND session = %(number)s AND seq > %(seq)s ORDER BY seq LIMIT %(limit)s

-- name: entries_before
SELECT seq, body::text FROM session_entry
WHERE team = %(team)s AND session = %(number)s AND seq < %(seq)s ORDER BY seq DESC LIMIT %(limit)s

-- name: archive
UPDATE session SET archived = %(why)s, archived_at = %(at)s
WHERE team = %(team)s AND number = %(number)s AND archived IS NULL RETURNING size

-- name: archives
SELECT id, archived, archived_at, size FROM session
WHERE team = %(team)s AND agent = %(agent)s AND archived IS NOT NULL ORDER BY archived_at, id

-- name: archived
SELECT number FROM session
WHERE team = %(team)s AND agent = %(agent)s AND id = %(id)s AND archived IS NOT NULL ORDER BY archived_at, number

-- name: archive_named
SELECT number, header::text FROM session
WHERE team = %(team)s AND agent = %(agent)s AND id = %(id)s AND archived = %(why)s AND archived_at = %(at)s

-- name: add_usage
INSERT INTO session_usage
SELECT %(team)s, %(agent)s, u.* FROM unnest(%(session)s::text[], %(u_entry)s::text[], %(key)s::text[],
    %(u_at)s::timestamptz[], %(u_model)s::text[], %(u_source)s::text[], %(u_run)s::text[], %(u_input)s::bigint[],
    %(u_output)s::bigint[], %(u_cache_read)s::bigint[], %(u_cache_write)s::bigint[], %(u_cost)s::float8[]) AS u
ON CONFLICT DO NOTHING

-- name: remove
DELETE FROM session
WHERE team = %(team)s AND agent = %(agent)s AND id = %(id)s AND archived = %(why)s AND archived_at = %(at)s

-- name: usage
SELECT at, session, entry, key, model, source, run, input, output, cache_read, cache_write, cost FROM session_usage
WHERE team = %(team)s AND agent = %(agent)s AND (%(since)s::timestamptz IS NULL OR at >= %(since)s)
ORDER BY at, session, entry

-- name: may_contain
-- The transcripts with messages that contain each of the words, not necessarily all in one message.
SELECT s.id FROM session s
WHERE s.team = %(team)s AND s.agent = %(agent)s AND s.archived IS NULL AND NOT EXISTS (
    SELECT FROM unnest(%(words)s::text[]) AS w (word)
    WHERE NOT EXISTS (SELECT FROM session_entry e WHERE e.session = s.number AND position(w.word IN e.words) > 0)
)
