-- Children of runs, and joins: steps that wait for a run which is not their child.

-- The rows are locked, so that a run which is about to be joined is not pruned meanwhile.
-- name: existing_runs
SELECT r.id, r.parent_id, r.parent_n, r.workflow, r.digest, r.started_by, r.started_n FROM holdfast.runs r
WHERE r.id = ANY($1::text[]) ORDER BY r.id FOR KEY SHARE OF r

-- Finds a row if the run $2 waits for the run $1, through children and joins.
-- name: awaits
WITH RECURSIVE above(id) AS (
    SELECT $1::text COLLATE "C"
    UNION SELECT up.id FROM above a CROSS JOIN LATERAL (
        SELECT r.parent_id AS id FROM holdfast.runs r WHERE r.id = a.id AND r.parent_id IS NOT NULL
        UNION ALL SELECT j.waiter_id FROM holdfast.joins j WHERE j.run_id = a.id) up)
SELECT 1 FROM above WHERE id = $2 AND (SELECT finished_at IS NULL FROM holdfast.runs WHERE id = $2) LIMIT 1

-- name: join_run
INSERT INTO holdfast.joins (run_id, waiter_id, waiter_n) VALUES ($1, $2, $3)
ON CONFLICT (waiter_id, waiter_n) DO NOTHING

-- name: cancel_children
INSERT INTO holdfast.signals (run_id, name, key, payload)
SELECT r.id, '$cancel', u.key, u.payload
FROM unnest($1::text[], $2::int[], $3::text[], $4::bytea[]) u(parent_id, parent_n, key, payload)
CROSS JOIN LATERAL (
    SELECT id FROM holdfast.runs WHERE parent_id = u.parent_id AND parent_n = u.parent_n AND finished_at IS NULL OFFSET 0) r
ON CONFLICT (run_id, name, key) DO NOTHING

-- Lets children that have succeeded undo themselves. One of which nothing can be undone stays as it is. All batches of all
-- nodes lock the children in the order of their ids.
-- name: undo_children
WITH found AS (
    SELECT r.id, u.error FROM unnest($1::text[], $2::int[], $3::text[]) u(parent_id, parent_n, error)
    JOIN holdfast.runs r ON r.parent_id = u.parent_id AND r.parent_n = u.parent_n
    WHERE r.state = 'succeeded' AND {undoable(r)}
    ORDER BY r.id FOR NO KEY UPDATE OF r)
UPDATE holdfast.runs r SET state = 'undoing', ending = 'failed', error = found.error, finished_at = NULL,
                  fence = r.fence + 1, limit_a = NULL, limit_b = NULL, limit_c = NULL
FROM found WHERE r.id = found.id
RETURNING r.id, r.parent_id, r.parent_n

-- name: child_states
SELECT r.parent_id, r.parent_n, r.id, r.state, r.error
FROM unnest($1::text[], $2::int[]) u(parent_id, parent_n)
JOIN holdfast.runs r ON r.parent_id = u.parent_id AND r.parent_n = u.parent_n

-- name: child_steps
SELECT parent_n FROM holdfast.runs WHERE parent_id = $1 AND parent_n IS NOT NULL ORDER BY parent_n

-- name: due_joins
SELECT j.run_id, j.waiter_id, j.waiter_n, r.state, r.output, r.error
FROM holdfast.joins j LEFT JOIN holdfast.runs r ON r.id = j.run_id
WHERE r.id IS NULL OR r.finished_at IS NOT NULL
ORDER BY j.waiter_id, j.waiter_n LIMIT $1 FOR UPDATE OF j SKIP LOCKED

-- name: forget_joins
DELETE FROM holdfast.joins j USING unnest($1::text[], $2::int[]) u(waiter_id, waiter_n)
WHERE j.waiter_id = u.waiter_id AND j.waiter_n = u.waiter_n

-- name: joins
SELECT waiter_n, run_id FROM holdfast.joins WHERE waiter_id = $1 ORDER BY waiter_n
