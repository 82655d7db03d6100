-- Children of runs, and joins: steps that wait for a run which is not their child.

-- name: existing_runs
SELECT id, parent_id, parent_n, workflow, digest, started_by, started_n FROM runs
WHERE id IN (SELECT value FROM json_each(?1)) ORDER BY id

-- Finds a row if the run ?2 waits for the run ?1, through children and joins.
-- name: awaits
WITH RECURSIVE above (id) AS (
    SELECT ?1
    UNION SELECT r.parent_id FROM above a CROSS JOIN runs r ON r.id = a.id WHERE r.parent_id IS NOT NULL
    UNION SELECT j.waiter_id FROM above a CROSS JOIN joins j INDEXED BY joins_of ON j.run_id = a.id)
SELECT 1 FROM above WHERE id = ?2 AND (SELECT finished_at IS NULL FROM runs WHERE id = ?2) LIMIT 1

-- name: join_run
INSERT INTO joins (run_id, waiter_id, waiter_n) VALUES (?1, ?2, ?3) ON CONFLICT (waiter_id, waiter_n) DO NOTHING

-- name: cancel_children
INSERT INTO signals (run_id, name, key, payload, sent_at)
SELECT id, '$cancel', ?3, ?4, store_now() FROM runs INDEXED BY runs_parent
WHERE parent_id = ?1 AND parent_n = ?2 AND finished_at IS NULL
ON CONFLICT (run_id, name, key) DO NOTHING

-- Lets a child that has succeeded undo itself. One of which nothing can be undone stays as it is.
-- name: undo_children
UPDATE runs SET state = 'undoing', ending = 'failed', error = ?3, finished_at = NULL, fence = fence + 1,
                limit_a = NULL, limit_b = NULL, limit_c = NULL
WHERE parent_id = ?1 AND parent_n = ?2 AND +state = 'succeeded' AND {undoable(runs)}
RETURNING id, parent_id, parent_n

-- name: child_states
SELECT parent_id, parent_n, id, state, error FROM runs INDEXED BY runs_parent WHERE parent_id = ?1 AND parent_n = ?2

-- name: child_steps
SELECT parent_n FROM runs INDEXED BY runs_parent WHERE parent_id = ?1 AND parent_n IS NOT NULL ORDER BY parent_n

-- name: due_joins
SELECT j.run_id, j.waiter_id, j.waiter_n, r.state, r.output, r.error
FROM joins j LEFT JOIN runs r ON r.id = j.run_id
WHERE r.id IS NULL OR r.finished_at IS NOT NULL LIMIT ?1

-- name: forget_joins
DELETE FROM joins WHERE waiter_id = ?1 AND waiter_n = ?2

-- name: joins
SELECT waiter_n, run_id FROM joins WHERE waiter_id = ?1 ORDER BY waiter_n
