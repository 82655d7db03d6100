-- Callbacks: steps that another system ends. The row of a callback follows that of its request.

-- The time of a callback begins when its request has been made.
-- name: begin_callbacks
UPDATE steps SET complete_by = store_now() + timeout_s
WHERE run_id = ?1 AND n = ?2 AND +state = 'waiting' AND +kind = 'callback' AND complete_by IS NULL

-- SQLite has only one write transaction at a time, so the row needs no lock.
-- name: lock_callback
SELECT fence, state, complete_by, output, error, name FROM steps WHERE run_id = ?1 AND n = ?2 AND +kind = 'callback'

-- name: extend_callback
UPDATE steps SET complete_by = store_now() + timeout_s
WHERE run_id = ?1 AND n = ?2 AND fence = ?3 AND +state = 'waiting' AND +kind = 'callback' AND complete_by IS NOT NULL

-- name: overdue_callbacks
SELECT run_id, n, fence, name, timeout_s FROM steps INDEXED BY steps_callbacks
WHERE state = 'waiting' AND kind = 'callback' AND complete_by <= (SELECT store_now()) ORDER BY complete_by LIMIT ?1

-- name: next_callback
SELECT complete_by FROM steps INDEXED BY steps_callbacks
WHERE state = 'waiting' AND kind = 'callback' AND complete_by IS NOT NULL ORDER BY complete_by LIMIT 1
