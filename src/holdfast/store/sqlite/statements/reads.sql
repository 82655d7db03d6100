-- What anybody may read. Columns stand in the order of the nouns in model.py.

-- name: run
SELECT id, namespace, workflow, version, state, priority, owner, fence, input, digest, output, error, tags, parent_id,
       parent_n, retry_of, generation, base_n, progress, published, resume, note, deadline, created_at, started_at,
       finished_at, ending, kept_n
FROM runs WHERE id = ?

-- name: runs
SELECT id, namespace, workflow, version, state, priority, owner, fence, input, digest, output, error, tags, parent_id,
       parent_n, retry_of, generation, base_n, progress, published, resume, note, deadline, created_at, started_at,
       finished_at, ending, kept_n
FROM runs INDEXED BY runs_newest
WHERE (created_at, id) < (:at, :id)
  AND (:states = '[]' OR +state IN (SELECT value FROM json_each(:states)))
  AND (:workflow IS NULL OR +workflow = :workflow OR substr(workflow, -length(:workflow) - 1) = '.' || :workflow)
  AND (SELECT count(*) FROM json_each(:tags) want JOIN json_each(coalesce(tags, '{}')) have
       ON have.key = want.key AND have.value = want.value) = (SELECT count(*) FROM json_each(:tags))
ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: ended_run
SELECT id, namespace, workflow, version, state, priority, owner, fence, input, digest, output, error, tags, parent_id,
       parent_n, retry_of, generation, base_n, progress, published, resume, note, deadline, created_at, started_at,
       finished_at, ending, kept_n
FROM runs WHERE id = ? AND (finished_at IS NOT NULL OR state = 'stuck')

-- name: unknown_run
SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = ?1)

-- name: runs_by_state
SELECT state, count(*) FROM runs GROUP BY state

-- name: steps
SELECT run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, losses, excused, attempts_max, timeout_s,
       fence, agent, complete_by, input, digest, output, error, retry, checkpoint, progress, delivered_seq, issued_at,
       started_at, finished_at, after_seq, timeouts, throttled, effect
FROM steps WHERE run_id = ? AND n > ? ORDER BY n LIMIT ?

-- name: attempts
SELECT run_id, n, attempt, ending, agent, error, started_at, finished_at
FROM attempts WHERE run_id = ? ORDER BY n, attempt, finished_at, rowid

-- name: signals
SELECT id, run_id, name, key, payload, delivered_seq, sent_at, set_aside FROM signals WHERE run_id = ? ORDER BY id

-- name: children
SELECT id, namespace, workflow, version, state, priority, owner, fence, input, digest, output, error, tags, parent_id,
       parent_n, retry_of, generation, base_n, progress, published, resume, note, deadline, created_at, started_at,
       finished_at, ending, kept_n
FROM runs INDEXED BY runs_parent WHERE parent_id = ? ORDER BY created_at, id

-- name: nodes
SELECT id, host, pid, roles, offers, capacity, started_at, lease_until, retired_at FROM nodes
ORDER BY retired_at IS NOT NULL, started_at DESC LIMIT 1000

-- What every node holds and owns: as many index entries as there is work in flight.
-- name: held_counts
SELECT agent, count(*) FROM steps INDEXED BY steps_held WHERE state = 'running' GROUP BY agent

-- name: owned_counts
SELECT owner, count(*) FROM runs INDEXED BY runs_owned WHERE owner IS NOT NULL GROUP BY owner

-- name: journal
SELECT id, at, actor, verb, run_id, n, note FROM journal ORDER BY id DESC LIMIT ?

-- name: journal_of_run
SELECT id, at, actor, verb, run_id, n, note FROM journal INDEXED BY journal_of WHERE run_id = ? ORDER BY id DESC LIMIT ?
