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

-- What lists say of a callback: `c` is its row, `q` that of its request and `r` its run.
-- fragment: waiting_callback
c.run_id, c.n, c.key, c.name, r.namespace, r.workflow, c.issued_at, q.state, q.finished_at, c.complete_by, c.timeout_s, c.attempts_max

-- True if workflow and step are those that the filter names, by their names or the last parts of them.
-- fragment: is_named_callback
((?1 IS NULL OR r.workflow = ?1 OR substr(r.workflow, -length(?1) - 1) = '.' || ?1 OR r.workflow = r.namespace || '//' || ?1)
 AND (?2 IS NULL OR c.name = ?2 OR substr(c.name, -length(?2) - 1) = '.' || ?2))

-- Those of the namespace ?4 after the cursor (issued_at, run_id, n), the oldest first.
-- name: waiting_callbacks
SELECT {waiting_callback} FROM steps c INDEXED BY steps_called
CROSS JOIN runs r ON r.id = c.run_id
LEFT JOIN steps q ON q.run_id = c.run_id AND q.n = c.n - 1 AND q.key = 'request:' || c.key
WHERE CASE WHEN instr(c.run_id, '//') > 1 THEN substr(c.run_id, 1, instr(c.run_id, '//') - 1) ELSE 'default' END = ?4
  AND c.state = 'waiting' AND c.kind = 'callback' AND (c.issued_at, c.run_id, c.n) > (?5, ?6, ?7)
  AND +r.namespace = ?4 AND {is_named_callback}
ORDER BY c.issued_at, c.run_id, c.n LIMIT ?3

-- Those of the run ?4 after the step ?5.
-- name: waiting_callbacks_of
SELECT {waiting_callback} FROM steps c
CROSS JOIN runs r ON r.id = c.run_id
LEFT JOIN steps q ON q.run_id = c.run_id AND q.n = c.n - 1 AND q.key = 'request:' || c.key
WHERE c.run_id = ?4 AND c.n > ?5 AND +c.state = 'waiting' AND +c.kind = 'callback' AND {is_named_callback}
ORDER BY c.n LIMIT ?3
