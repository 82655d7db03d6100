-- What anybody may read.

-- name: store_now
SELECT clock_timestamp()

-- name: run
SELECT {Run} FROM holdfast.runs WHERE id = $1

-- Filters by states, workflow, cursor (created_at, id) and tags.
-- name: runs
SELECT {Run} FROM holdfast.runs
WHERE (cardinality($1::text[]) = 0 OR state = ANY($1))
  AND ($2::text IS NULL OR workflow = $2 OR right(workflow, length($2) + 1) = '.' || $2)
  AND ($3::timestamptz IS NULL OR (created_at, id) < ($3, $4))
  AND ($5::jsonb IS NULL OR tags::jsonb @> $5)
ORDER BY created_at DESC, id DESC LIMIT $6

-- name: ended_runs
SELECT {Run(r)} FROM unnest($1::text[]) u(id)
CROSS JOIN LATERAL (
    SELECT {Run} FROM holdfast.runs WHERE id = u.id AND (finished_at IS NOT NULL OR state = 'stuck') OFFSET 0) r

-- name: unknown_runs
SELECT u.id FROM unnest($1::text[]) u(id)
LEFT JOIN LATERAL (SELECT id FROM holdfast.runs WHERE id = u.id OFFSET 0) r ON true
WHERE r.id IS NULL

-- name: runs_by_state
SELECT state, count(*) FROM holdfast.runs GROUP BY state

-- name: steps
SELECT {Step} FROM holdfast.steps WHERE run_id = $1 AND n > $2 ORDER BY n LIMIT $3

-- name: attempts
SELECT {Attempt} FROM holdfast.attempts WHERE run_id = $1 ORDER BY n, attempt, finished_at

-- name: signals
SELECT {Signal} FROM holdfast.signals WHERE run_id = $1 ORDER BY id

-- name: children
SELECT {Run} FROM holdfast.runs WHERE parent_id = $1 ORDER BY created_at, id

-- name: journal
SELECT {JournalEntry} FROM holdfast.journal ORDER BY id DESC LIMIT $1

-- name: journal_of_run
SELECT {JournalEntry} FROM holdfast.journal WHERE run_id = $1 ORDER BY id DESC LIMIT $2
