-- What anybody may read.

-- name: run
SELECT {Run} FROM runs WHERE id = ?1

-- Filters by states, workflow, cursor (created_at, id) and tags.
-- name: runs
SELECT {Run} FROM runs INDEXED BY runs_newest
WHERE (created_at, id) < (coalesce(?3, 1e18), coalesce(?4, ''))
  AND (?1 = '[]' OR +state IN (SELECT value FROM json_each(?1)))
  AND (?2 IS NULL OR +workflow = ?2 OR substr(workflow, -length(?2) - 1) = '.' || ?2)
  AND (?5 IS NULL OR (SELECT count(*) FROM json_each(?5) want JOIN json_each(coalesce(tags, '{}')) have
                      ON have.key = want.key AND have.value = want.value) = (SELECT count(*) FROM json_each(?5)))
ORDER BY created_at DESC, id DESC LIMIT ?6

-- name: ended_runs
SELECT {Run(r)} FROM json_each(?1) u CROSS JOIN runs r ON r.id = u.value
WHERE r.finished_at IS NOT NULL OR +r.state = 'stuck'

-- name: unknown_runs
SELECT u.value FROM json_each(?1) u WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = u.value)

-- name: runs_by_state
SELECT state, count(*) FROM runs GROUP BY state

-- name: steps
SELECT {Step} FROM steps WHERE run_id = ?1 AND n > ?2 ORDER BY n LIMIT ?3

-- name: attempts
SELECT {Attempt} FROM attempts WHERE run_id = ?1 ORDER BY n, attempt, finished_at, rowid

-- name: signals
SELECT {Signal} FROM signals WHERE run_id = ?1 ORDER BY id

-- name: children
SELECT {Run} FROM runs INDEXED BY runs_parent WHERE parent_id = ?1 ORDER BY created_at, id

-- name: journal
SELECT {JournalEntry} FROM journal ORDER BY id DESC LIMIT ?1

-- name: journal_of_run
SELECT {JournalEntry} FROM journal INDEXED BY journal_of WHERE run_id = ?1 ORDER BY id DESC LIMIT ?2
