-- Namespaces are walls. Whatever is compared by name has its namespace before it: `acme//charge`, bare in `default`. So
-- lanes, breakers, holds and durations need no column for it. What people list has one.

-- What is said about the store as a whole has an empty namespace. `about` is the stored name of a gate.
ALTER TABLE journal ADD COLUMN about TEXT;
ALTER TABLE journal ADD COLUMN namespace TEXT GENERATED ALWAYS AS (
    CASE WHEN instr(coalesce(run_id, about), '//') > 1
         THEN substr(coalesce(run_id, about), 1, instr(coalesce(run_id, about), '//') - 1)
         WHEN coalesce(run_id, about) IS NOT NULL THEN 'default' ELSE '' END) VIRTUAL;
CREATE INDEX journal_in ON journal (namespace, id);
ALTER TABLE alerts ADD COLUMN about TEXT;
ALTER TABLE alerts ADD COLUMN namespace TEXT GENERATED ALWAYS AS (
    CASE WHEN instr(coalesce(run_id, about), '//') > 1
         THEN substr(coalesce(run_id, about), 1, instr(coalesce(run_id, about), '//') - 1)
         WHEN coalesce(run_id, about) IS NOT NULL THEN 'default' ELSE '' END) VIRTUAL;
CREATE INDEX alerts_in ON alerts (namespace, id);
CREATE INDEX alerts_open_in ON alerts (namespace, id) WHERE cleared_at IS NULL;

-- An act with an empty namespace is about the whole store.
ALTER TABLE acts ADD COLUMN namespace TEXT NOT NULL DEFAULT '';
CREATE INDEX acts_in ON acts (namespace, created_at DESC, id DESC);

-- Lists of runs are read one namespace at a time.
DROP INDEX runs_newest;
CREATE INDEX runs_newest ON runs (namespace, created_at DESC, id DESC);

-- Queues. Nobody claims what is in another queue than 0, so that those who will can work beside those who cannot.
ALTER TABLE runs ADD COLUMN queue INTEGER NOT NULL DEFAULT 0;
ALTER TABLE steps ADD COLUMN queue INTEGER NOT NULL DEFAULT 0;

-- Runs in other namespaces had bare names for their workflows and steps, and shared the lanes of `default`. The ids of
-- these runs stay as they are, because random numbers are derived from them.
INSERT INTO lanes (name, needs, undo, depends)
SELECT DISTINCT r.namespace || '//' || l.name, l.needs, l.undo, r.namespace || '//' || l.depends
FROM runs r JOIN steps s ON s.run_id = r.id JOIN lanes l ON l.id = s.lane
WHERE r.namespace <> 'default' AND instr(r.workflow, '//') = 0
ON CONFLICT (name, needs, undo, depends) DO NOTHING;
UPDATE steps SET name = r.namespace || '//' || steps.name, lane = coalesce((
    SELECT n.id FROM lanes l JOIN lanes n
        ON n.name = r.namespace || '//' || l.name AND n.needs = l.needs AND n.undo = l.undo
       AND n.depends = r.namespace || '//' || l.depends
    WHERE l.id = steps.lane), steps.lane)
FROM runs r
WHERE r.id = steps.run_id AND steps.kind = 'call' AND r.namespace <> 'default' AND instr(r.workflow, '//') = 0;
UPDATE quarantine SET step = r.namespace || '//' || step
FROM runs r WHERE r.id = quarantine.run_id AND r.namespace <> 'default' AND instr(r.workflow, '//') = 0;
UPDATE runs SET workflow = namespace || '//' || workflow WHERE namespace <> 'default' AND instr(workflow, '//') = 0;
