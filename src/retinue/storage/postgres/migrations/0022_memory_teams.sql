-- Memory indexes of several teams in one database: the name of an index begins with its team, and the tables of the index
-- show nothing of other teams. An index of a database with one team is kept. If there are several, nobody knows whose
-- notes an index has; it is deleted, and built again from the notes.
SELECT set_config('app.operator', 'on', true);
DELETE FROM memory_index WHERE (SELECT count(*) FROM team) > 1;
UPDATE memory_index SET name = coalesce((SELECT min(id) FROM team), 'default') || '/' || name;
SELECT set_config('app.operator', '', true);

ALTER TABLE memory_index ADD COLUMN team text NOT NULL GENERATED ALWAYS AS (split_part(name, '/', 1)) STORED;

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'memory_index', 'memory_meta', 'memory_file', 'memory_embedding', 'memory_chunk', 'memory_posting', 'memory_term',
        'memory_field'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        IF name = 'memory_index' THEN
            EXECUTE format(
                'CREATE POLICY team ON %I USING (team = nullif(current_setting(''app.team'', true), '''')) '
                'WITH CHECK (team = nullif(current_setting(''app.team'', true), ''''))', name);
        ELSE
            -- The indexes of a team are few; as an array they are read once per statement, not once per row.
            EXECUTE format(
                'CREATE POLICY team ON %I USING (index = ANY (ARRAY(SELECT id FROM memory_index))) '
                'WITH CHECK (index = ANY (ARRAY(SELECT id FROM memory_index)))', name);
        END IF;
    END LOOP;
END $$;
