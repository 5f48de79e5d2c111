-- name: find_index
SELECT id, revision, identity, dims FROM memory_index WHERE name = %(name)s

-- name: create_index
INSERT INTO memory_index (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING

-- name: lock_index
SELECT id, identity FROM memory_index WHERE name = %(name)s FOR UPDATE

-- name: count_revision
UPDATE memory_index SET revision = revision + 1 WHERE id = %(index)s

-- name: adopt
UPDATE memory_index SET identity = %(identity)s WHERE id = %(index)s

-- name: delete_indexes
DELETE FROM memory_index WHERE name = ANY(%(names)s)

-- name: replace_index
UPDATE memory_index SET name = %(name)s, revision = %(revision)s WHERE name = %(beside)s

-- name: write_meta
INSERT INTO memory_meta (index, key, value) VALUES (%(index)s, %(key)s, %(value)s)
ON CONFLICT (index, key) DO UPDATE SET value = excluded.value

-- name: read_meta
SELECT m.value FROM memory_meta m JOIN memory_index i ON i.id = m.index WHERE i.name = %(name)s AND m.key = %(key)s

-- name: list_files
SELECT f.path, f.source, f.hash, f.size, f.mtime_ns, f.day
FROM memory_file f JOIN memory_index i ON i.id = f.index WHERE i.name = %(name)s

-- name: touch_file
UPDATE memory_file SET size = %(size)s, mtime_ns = %(mtime_ns)s WHERE index = %(index)s AND path = %(path)s

-- name: forget_terms
-- Deletes the postings of chunks of some files, and lowers the counts of their terms and fields.
WITH gone AS (
    DELETE FROM memory_posting p USING memory_chunk c JOIN memory_file f ON f.id = c.file
    WHERE p.chunk = c.id AND f.index = %(index)s AND f.path = ANY(%(paths)s)
    RETURNING p.field, p.term, p.chunk, p.length
), fewer AS (
    UPDATE memory_term t SET chunks = t.chunks - g.chunks
    FROM (SELECT field, term, count(*) AS chunks FROM gone GROUP BY field, term) g
    WHERE t.index = %(index)s AND (t.field, t.term) = (g.field, g.term)
)
UPDATE memory_field t SET chunks = t.chunks - g.chunks, length = t.length - g.length
FROM (
    SELECT field, count(*) AS chunks, sum(length) AS length
    FROM (SELECT DISTINCT field, chunk, length FROM gone) AS each GROUP BY field
) g
WHERE t.index = %(index)s AND t.field = g.field

-- name: delete_files
DELETE FROM memory_file WHERE index = %(index)s AND path = ANY(%(paths)s)

-- name: add_file
INSERT INTO memory_file (index, path, source, hash, size, mtime_ns, day, chunks, words)
VALUES (%(index)s, %(path)s, %(source)s, %(hash)s, %(size)s, %(mtime_ns)s, %(day)s, %(chunks)s, %(words)s) RETURNING id

-- name: take_chunk_ids
SELECT nextval(pg_get_serial_sequence('memory_chunk', 'id')) FROM generate_series(1, %(count)s)

-- name: add_chunks
-- Columns as arrays: row-level security refuses COPY.
INSERT INTO memory_chunk (id, index, file, ordinal, start_line, end_line, hash, words, origin, context, text, standing)
SELECT id, %(index)s, file, ordinal, start_line, end_line, hash, words, origin, context, text, standing
FROM unnest(%(id)s::bigint[], %(file)s::bigint[], %(ordinal)s::int[], %(start_line)s::int[], %(end_line)s::int[],
            %(hash)s::text[], %(words)s::int[], %(origin)s::text[], %(context)s::text[], %(text)s::text[],
            %(standing)s::text[])
     AS new (id, file, ordinal, start_line, end_line, hash, words, origin, context, text, standing)

-- name: add_postings
-- The positions are texts, because an array of arrays needs all of one length.
INSERT INTO memory_posting (index, field, term, chunk, positions, length)
SELECT %(index)s, field, term, chunk, positions::int[], length
FROM unnest(%(field)s::smallint[], %(term)s::text[], %(chunk)s::bigint[], %(positions)s::text[], %(length)s::int[])
     AS new (field, term, chunk, positions, length)

-- name: count_terms
INSERT INTO memory_term (index, field, term, chunks)
SELECT index, field, term, count(*) FROM memory_posting WHERE chunk = ANY(%(chunks)s) GROUP BY index, field, term
ON CONFLICT (index, field, term) DO UPDATE SET chunks = memory_term.chunks + excluded.chunks

-- name: count_fields
INSERT INTO memory_field (index, field, chunks, length)
SELECT index, field, count(*), sum(length)
FROM (SELECT DISTINCT index, field, chunk, length FROM memory_posting WHERE chunk = ANY(%(chunks)s)) AS each
GROUP BY index, field
ON CONFLICT (index, field) DO UPDATE SET
    chunks = memory_field.chunks + excluded.chunks, length = memory_field.length + excluded.length

-- name: use_known_vectors
UPDATE memory_chunk c SET embedding = e.id FROM memory_embedding e
WHERE c.id = ANY(%(chunks)s) AND e.index = c.index AND e.embedder = %(embedder)s AND e.hash = c.hash

-- name: list_unembedded
SELECT c.hash, c.context, c.text FROM memory_chunk c
WHERE c.id IN (
    SELECT min(u.id) FROM memory_chunk u JOIN memory_index i ON i.id = u.index
    WHERE i.name = %(name)s AND u.embedding IS NULL GROUP BY u.hash ORDER BY 1 LIMIT %(limit)s OFFSET %(skip)s
)
ORDER BY c.id

-- name: count_unembedded
SELECT count(DISTINCT c.hash) FROM memory_chunk c JOIN memory_index i ON i.id = c.index
WHERE i.name = %(name)s AND c.embedding IS NULL

-- name: set_dims
UPDATE memory_index SET dims = %(dims)s WHERE id = %(index)s

-- name: add_vector
INSERT INTO memory_embedding (index, embedder, hash, dims, vector, lines)
VALUES (%(index)s, %(embedder)s, %(hash)s, %(dims)s, %(vector)s, %(lines)s) ON CONFLICT DO NOTHING

-- name: use_vectors
UPDATE memory_chunk c SET embedding = e.id FROM memory_embedding e
WHERE c.index = %(index)s AND c.embedding IS NULL AND c.hash = ANY(%(hashes)s)
AND e.index = c.index AND e.embedder = %(embedder)s AND e.hash = c.hash

-- name: inherit_vectors
INSERT INTO memory_embedding (index, embedder, hash, dims, vector, lines)
SELECT %(index)s, e.embedder, e.hash, e.dims, e.vector, e.lines
FROM memory_embedding e JOIN memory_index i ON i.id = e.index
WHERE i.name = %(name)s AND e.embedder = %(embedder)s ORDER BY e.id

-- name: inherit_dims
UPDATE memory_index SET dims = (SELECT dims FROM memory_embedding WHERE index = %(index)s LIMIT 1)
WHERE id = %(index)s

-- name: prune_vectors
DELETE FROM memory_embedding WHERE id IN (
    SELECT e.id FROM memory_embedding e JOIN memory_index i ON i.id = e.index
    WHERE i.name = %(name)s AND NOT EXISTS (SELECT 1 FROM memory_chunk c WHERE c.embedding = e.id)
    ORDER BY e.id DESC OFFSET %(most)s
)

-- name: totals
SELECT (SELECT count(*) FROM memory_file WHERE index = %(index)s),
       coalesce(sum(chunks), 0)::bigint, coalesce(sum(words), 0)::bigint,
       (SELECT count(*) FROM memory_chunk WHERE index = %(index)s AND embedding IS NOT NULL)
FROM memory_file WHERE index = %(index)s

-- name: field_size
SELECT chunks, length FROM memory_field WHERE index = %(index)s AND field = %(field)s

-- name: frequencies
SELECT term, chunks FROM memory_term WHERE index = %(index)s AND field = %(field)s AND term = ANY(%(terms)s)

-- name: rank_terms
-- BM25 as SQLite's full-text index computes it.
SELECT p.chunk, sum(
    w.weight * cardinality(p.positions) * 2.2
    / (cardinality(p.positions) + 1.2 * (0.25 + 0.75 * p.length / %(average)s::float8))
) AS score
FROM unnest(%(terms)s::text[], %(weights)s::float8[]) AS w(term, weight)
JOIN memory_posting p ON p.index = %(index)s AND p.field = %(field)s AND p.term = w.term
GROUP BY p.chunk ORDER BY score DESC, p.chunk LIMIT %(limit)s

-- name: read_postings
SELECT chunk, term, positions, length FROM memory_posting
WHERE index = %(index)s AND field = %(field)s AND term = ANY(%(terms)s) AND chunk IN (
    SELECT chunk FROM memory_posting WHERE index = %(index)s AND field = %(field)s AND term = ANY(%(terms)s)
    GROUP BY chunk HAVING count(*) = cardinality(%(terms)s)
)

-- name: list_standing
SELECT id FROM memory_chunk WHERE index = %(index)s AND standing IS NOT NULL ORDER BY id DESC LIMIT %(limit)s

-- name: nearest_exactly
WITH each AS MATERIALIZED (
    SELECT e.id, e.vector <#> %(vector)s::vector AS distance FROM memory_embedding e
    WHERE e.index = %(index)s AND e.dims = %(dims)s
    AND EXISTS (SELECT 1 FROM memory_chunk c WHERE c.embedding = e.id)
)
SELECT id FROM each ORDER BY distance, id LIMIT %(limit)s

-- name: nearest_in_graph
SELECT e.id FROM memory_embedding e
WHERE e.index = %(index)s AND e.dims = 256 AND EXISTS (SELECT 1 FROM memory_chunk c WHERE c.embedding = e.id)
ORDER BY e.vector::vector(256) <#> %(vector)s::vector(256) LIMIT %(limit)s

-- name: chunks_of_vectors
SELECT id, embedding FROM memory_chunk WHERE embedding = ANY(%(embeddings)s)

-- name: similarities
SELECT c.id, c.embedding, -(e.vector <#> %(vector)s::vector) FROM memory_chunk c
JOIN memory_embedding e ON e.id = c.embedding WHERE c.id = ANY(%(chunks)s) AND e.dims = %(dims)s

-- name: used_vectors
SELECT DISTINCT embedding FROM memory_chunk WHERE index = %(index)s AND embedding IS NOT NULL ORDER BY embedding

-- name: lines_of_vectors
SELECT id, lines FROM memory_embedding WHERE id = ANY(%(embeddings)s) AND lines IS NOT NULL ORDER BY id

-- name: chunks
SELECT c.id, f.path, f.source, c.ordinal, c.start_line, c.end_line, c.text, c.context, c.words, c.origin, f.day
FROM memory_chunk c JOIN memory_file f ON f.id = c.file WHERE c.id = ANY(%(chunks)s)
