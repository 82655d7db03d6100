-- Starts that one run takes (see gathers.py). Most of these also run on connections of callers, which have another search
-- path. So functions are named with their schema.

-- Locks the key, so that one start after another is taken.
-- name: lock_gather
INSERT INTO holdfast.gathers AS g (key, run_id, starts, items, bytes) VALUES ($1, $2, 0, 0, 0)
ON CONFLICT (key) DO UPDATE SET key = excluded.key
RETURNING g.run_id, g.starts, g.items, g.bytes

-- Finds and locks the run of the key, if it has not begun. Nobody admits it until the end of the transaction.
-- name: open_gather
SELECT 1 FROM holdfast.runs WHERE id = $1 AND state = 'pending' AND queue < 0 FOR UPDATE

-- name: note_gathered
INSERT INTO holdfast.gathered (id, run_id, n, workflow, digest, parameter, items) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO NOTHING RETURNING 1

-- name: gathered_as
SELECT run_id, workflow, digest FROM holdfast.gathered WHERE id = $1

-- name: forget_gathered
DELETE FROM holdfast.gathered WHERE id = $1

-- name: forget_gather
DELETE FROM holdfast.gathers WHERE key = $1 AND starts = 0

-- name: keep_gather
UPDATE holdfast.gathers SET run_id = $2, starts = $3, items = $4, bytes = $5 WHERE key = $1

-- The newest start counts. The run begins $6 seconds after it, and at most $7 seconds after the first one. Its deadline is
-- moved with it.
-- name: move_debounced
UPDATE holdfast.runs r SET input = $2, digest = $3, tags = $4, priority = $5, begin_at = t.at, deadline = r.deadline + (t.at - r.begin_at)
FROM (SELECT least(pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $6::float8),
                   m.created_at + pg_catalog.make_interval(secs => $7::float8)) AS at
      FROM holdfast.runs m WHERE m.id = $1) t
WHERE r.id = $1 AND r.state = 'pending' AND r.queue < 0

-- name: batch_items
SELECT items FROM holdfast.gathered WHERE run_id = $1 AND items IS NOT NULL ORDER BY n

-- name: batch_input
SELECT input FROM holdfast.runs WHERE id = $1

-- name: fill_batch
UPDATE holdfast.runs SET input = $2, digest = $3 WHERE id = $1 AND state = 'pending' AND queue < 0

-- name: admit_batch
UPDATE holdfast.runs SET queue = -1 - queue, begin_at = pg_catalog.clock_timestamp()
WHERE id = $1 AND state = 'pending' AND queue < 0

-- Those of these runs that are batches, with the parameter that gets the items: their first start has it. The row of the key
-- may name another run by now.
-- name: batches_of
SELECT run_id, parameter FROM holdfast.gathered WHERE run_id = ANY($1::text[]) AND n = 1 AND parameter <> '' ORDER BY run_id
