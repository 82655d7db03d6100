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

-- What lists say of a callback: `c` is its row, `q` that of its request and `r` its run.
-- fragment: waiting_callback
c.run_id, c.n, c.key, c.name, r.namespace, r.workflow, c.issued_at, q.state, q.finished_at, c.complete_by, c.timeout_s, c.attempts_max

-- True if workflow and step are those that the filter names, by their names or the last parts of them.
-- fragment: is_named_callback
(($1::text IS NULL OR r.workflow = $1 OR right(r.workflow, length($1) + 1) = '.' || $1 OR r.workflow = r.namespace || '//' || $1)
 AND ($2::text IS NULL OR c.name = $2 OR right(c.name, length($2) + 1) = '.' || $2))

-- Those of the namespace $4 after the cursor (issued_at, run_id, n), the oldest first.
-- name: waiting_callbacks
SELECT {waiting_callback} FROM holdfast.steps c
CROSS JOIN LATERAL (SELECT namespace, workflow FROM holdfast.runs WHERE id = c.run_id OFFSET 0) r
LEFT JOIN LATERAL (
    SELECT state, finished_at FROM holdfast.steps
    WHERE run_id = c.run_id AND n = c.n - 1 AND key = 'request:' || c.key OFFSET 0) q ON true
WHERE holdfast.namespace_of(c.run_id) = $4::text
  AND c.state = 'waiting' AND c.kind = 'callback' AND (c.issued_at, c.run_id, c.n) > ($5::timestamptz, $6::text, $7::int)
  AND r.namespace = $4 AND {is_named_callback}
ORDER BY c.issued_at, c.run_id, c.n LIMIT $3

-- Those of the run $4 after the step $5.
-- name: waiting_callbacks_of
SELECT {waiting_callback} FROM holdfast.steps c
CROSS JOIN LATERAL (SELECT namespace, workflow FROM holdfast.runs WHERE id = c.run_id OFFSET 0) r
LEFT JOIN LATERAL (
    SELECT state, finished_at FROM holdfast.steps
    WHERE run_id = c.run_id AND n = c.n - 1 AND key = 'request:' || c.key OFFSET 0) q ON true
WHERE c.run_id = $4 AND c.n > $5::int AND c.state = 'waiting' AND c.kind = 'callback' AND {is_named_callback}
ORDER BY c.n LIMIT $3
