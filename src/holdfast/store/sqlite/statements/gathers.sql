-- Starts that one run takes (see gathers.py). Most of these also run on connections of callers.

-- name: lock_gather
INSERT INTO gathers (key, run_id, starts, items, bytes) VALUES (?1, ?2, 0, 0, 0)
ON CONFLICT (key) DO UPDATE SET key = excluded.key
RETURNING run_id, starts, items, bytes

-- Finds the run of the key, if it has not begun.
-- name: open_gather
SELECT 1 FROM runs WHERE id = ?1 AND +state = 'pending' AND queue < 0

-- name: note_gathered
INSERT INTO gathered (id, run_id, n, workflow, digest, parameter, items) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (id) DO NOTHING RETURNING 1

-- name: gathered_as
SELECT run_id, workflow, digest FROM gathered WHERE id = ?1

-- name: forget_gathered
DELETE FROM gathered WHERE id = ?1

-- name: forget_gather
DELETE FROM gathers WHERE key = ?1 AND starts = 0

-- name: keep_gather
UPDATE gathers SET run_id = ?2, starts = ?3, items = ?4, bytes = ?5 WHERE key = ?1

-- The newest start counts. The run begins ?6 seconds after it, and at most ?7 seconds after the first one. Its deadline is
-- moved with it.
-- name: move_debounced
UPDATE runs SET input = ?2, digest = ?3, tags = ?4, priority = ?5, begin_at = min(store_now() + ?6, created_at + ?7),
                deadline = deadline + (min(store_now() + ?6, created_at + ?7) - begin_at)
WHERE id = ?1 AND +state = 'pending' AND queue < 0

-- name: batch_items
SELECT items FROM gathered INDEXED BY gathered_of WHERE run_id = ?1 AND items IS NOT NULL ORDER BY n

-- name: batch_input
SELECT input FROM runs WHERE id = ?1

-- name: fill_batch
UPDATE runs SET input = ?2, digest = ?3 WHERE id = ?1 AND +state = 'pending' AND queue < 0

-- name: admit_batch
UPDATE runs SET queue = -1 - queue, begin_at = store_now() WHERE id = ?1 AND +state = 'pending' AND queue < 0

-- Those of these runs that are batches, with the parameter that gets the items: their first start has it. The row of the key
-- may name another run by now.
-- name: batches_of
SELECT g.run_id, g.parameter FROM json_each(?1) u CROSS JOIN gathered g INDEXED BY gathered_of ON g.run_id = u.value AND g.n = 1
WHERE g.parameter <> '' ORDER BY g.run_id
