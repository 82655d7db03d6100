-- Callbacks: steps that another system ends. The row of a callback follows that of its request.

-- The time of a callback begins when its request has been made.
-- name: begin_callbacks
UPDATE holdfast.steps s SET complete_by = clock_timestamp() + make_interval(secs => s.timeout_s)
FROM unnest($1::text[], $2::int[]) u(run_id, n)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.state = 'waiting' AND s.kind = 'callback' AND s.complete_by IS NULL

-- name: lock_callback
SELECT fence, state, complete_by, output, error, name FROM holdfast.steps
WHERE run_id = $1 AND n = $2 AND kind = 'callback' FOR UPDATE

-- name: extend_callback
UPDATE holdfast.steps SET complete_by = clock_timestamp() + make_interval(secs => timeout_s)
WHERE run_id = $1 AND n = $2 AND fence = $3 AND state = 'waiting' AND kind = 'callback' AND complete_by IS NOT NULL

-- name: overdue_callbacks
SELECT run_id, n, fence, name, timeout_s FROM holdfast.steps
WHERE state = 'waiting' AND kind = 'callback' AND complete_by <= clock_timestamp()
ORDER BY complete_by LIMIT $1 FOR UPDATE SKIP LOCKED

-- name: next_callback
SELECT complete_by FROM holdfast.steps
WHERE state = 'waiting' AND kind = 'callback' AND complete_by IS NOT NULL ORDER BY complete_by LIMIT 1
