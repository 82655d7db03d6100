-- Namespaces are walls. Whatever is compared by name has its namespace before it: `acme//charge`, bare in `default`. So
-- lanes, breakers, holds and durations need no column for it. What people list has one.

-- The namespace of a stored name.
CREATE FUNCTION holdfast.namespace_of(name text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN position('//' IN name) > 1 THEN split_part(name, '//', 1) WHEN name IS NOT NULL THEN 'default' END
$$;

-- What is said about the store as a whole has an empty namespace. `about` is the stored name of a gate.
ALTER TABLE holdfast.journal
    ADD COLUMN about text,
    ADD COLUMN namespace text GENERATED ALWAYS AS (
        CASE WHEN position('//' IN coalesce(run_id, about)) > 1 THEN split_part(coalesce(run_id, about), '//', 1)
             WHEN coalesce(run_id, about) IS NOT NULL THEN 'default' ELSE '' END) STORED;
CREATE INDEX journal_in ON holdfast.journal (namespace, id);
ALTER TABLE holdfast.alerts
    ADD COLUMN about text,
    ADD COLUMN namespace text GENERATED ALWAYS AS (
        CASE WHEN position('//' IN coalesce(run_id, about)) > 1 THEN split_part(coalesce(run_id, about), '//', 1)
             WHEN coalesce(run_id, about) IS NOT NULL THEN 'default' ELSE '' END) STORED;
CREATE INDEX alerts_in ON holdfast.alerts (namespace, id);
CREATE INDEX alerts_open_in ON holdfast.alerts (namespace, id) WHERE cleared_at IS NULL;

-- An act with an empty namespace is about the whole store.
ALTER TABLE holdfast.acts ADD COLUMN namespace text NOT NULL DEFAULT '';
CREATE INDEX acts_in ON holdfast.acts (namespace, created_at DESC, id DESC);

-- Lists of runs are read one namespace at a time.
DROP INDEX holdfast.runs_newest;
CREATE INDEX runs_newest ON holdfast.runs (namespace, created_at DESC, id DESC);

-- Queues. Nobody claims what is in another queue than 0, so that those who will can work beside those who cannot.
ALTER TABLE holdfast.runs ADD COLUMN queue integer NOT NULL DEFAULT 0;
ALTER TABLE holdfast.steps ADD COLUMN queue integer NOT NULL DEFAULT 0;

-- Runs in other namespaces had bare names for their workflows and steps, and shared the lanes of `default`. The ids of
-- these runs stay as they are, because random numbers are derived from them.
INSERT INTO holdfast.lanes (name, needs, undo, depends)
SELECT DISTINCT r.namespace || '//' || l.name, l.needs, l.undo, r.namespace || '//' || l.depends
FROM holdfast.runs r JOIN holdfast.steps s ON s.run_id = r.id JOIN holdfast.lanes l ON l.id = s.lane
WHERE r.namespace <> 'default' AND position('//' IN r.workflow) = 0
ON CONFLICT (name, needs, undo, depends) DO NOTHING;
UPDATE holdfast.steps s SET name = r.namespace || '//' || s.name, lane = coalesce((
    SELECT n.id FROM holdfast.lanes l JOIN holdfast.lanes n
        ON n.name = r.namespace || '//' || l.name AND n.needs = l.needs AND n.undo = l.undo
       AND n.depends = r.namespace || '//' || l.depends
    WHERE l.id = s.lane), s.lane)
FROM holdfast.runs r
WHERE r.id = s.run_id AND s.kind = 'call' AND r.namespace <> 'default' AND position('//' IN r.workflow) = 0;
UPDATE holdfast.quarantine q SET step = r.namespace || '//' || q.step
FROM holdfast.runs r WHERE r.id = q.run_id AND r.namespace <> 'default' AND position('//' IN r.workflow) = 0;
UPDATE holdfast.runs SET workflow = namespace || '//' || workflow
WHERE namespace <> 'default' AND position('//' IN workflow) = 0;
