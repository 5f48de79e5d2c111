-- Leases whose owner is alive: it renews them, and its process holds the advisory lock of its number (class 0x5265).
CREATE VIEW live_lease WITH (security_invoker = true) AS
SELECT team, name, owner, epoch, expires FROM lease
WHERE owner IS NOT NULL AND expires >= now() AND EXISTS (
    SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted
      AND l.classid = 21093 AND l.objid = lease.owner AND l.objsubid = 2
);

-- The gateways of a team. A row counts while the lease `worker:<name>` is live.
CREATE TABLE worker (
    team text NOT NULL,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('all', 'front', 'worker')),
    host text NOT NULL,
    pid int NOT NULL,
    address text NOT NULL,
    version text NOT NULL,
    started_at timestamptz NOT NULL,
    PRIMARY KEY (team, name)
);
ALTER TABLE worker ENABLE ROW LEVEL SECURITY;
ALTER TABLE worker FORCE ROW LEVEL SECURITY;
CREATE POLICY team ON worker USING (team = nullif(current_setting('app.team', true), ''))
WITH CHECK (team = nullif(current_setting('app.team', true), ''));

-- A message that is accepted wakes the workers, when its transaction has ended. They read what to do from the rows.
CREATE FUNCTION announce_work() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('retinue_work', new.team);
    RETURN NULL;
END $$;
CREATE TRIGGER announce_work AFTER INSERT ON inbox FOR EACH ROW WHEN (new.state = 'waiting')
EXECUTE FUNCTION announce_work();
