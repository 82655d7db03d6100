-- The hot path: what the writer's batches run, each with one row of parameters per operation. The number of changed
-- rows tells whether every precondition held.

-- name: begin_runs
INSERT INTO runs (id, namespace, workflow, version, state, priority, owner, fence, input, digest, tags, parent_id,
                  parent_n, deadline, created_at, started_at)
VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING

-- name: owned_runs
SELECT 1 FROM runs WHERE id = ? AND fence = ?

-- name: record_outcomes
UPDATE steps SET state = ?, output = ?, error = ?, finished_at = ?, delivered_seq = ?, fence = fence + 1
WHERE run_id = ? AND n = ? AND fence = ?

-- The plus keeps the planner on the primary key: a partial index names the same columns.
-- name: deliver_steps
UPDATE steps SET delivered_seq = ?
WHERE run_id = ? AND n = ? AND +delivered_seq IS NULL AND finished_at IS NOT NULL

-- name: deliver_signals
UPDATE signals SET delivered_seq = ? WHERE id = ? AND run_id = ? AND +delivered_seq IS NULL

-- name: set_aside_signals
UPDATE signals SET set_aside = ? WHERE run_id = ? AND delivered_seq = ? AND set_aside IS NULL

-- name: end_waits
UPDATE steps SET state = 'succeeded', output = ?, delivered_seq = ?, finished_at = ?, fence = fence + 1
WHERE run_id = ? AND n = ? AND +state = 'waiting'

-- name: issue_steps
INSERT INTO steps (run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, fence, agent, attempts_max,
                   timeout_s, complete_by, input, digest, retry, issued_at, started_at, after_seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, n) DO NOTHING

-- name: drop_steps
UPDATE steps SET delivered_seq = 0, finished_at = coalesce(finished_at, ?),
                 fence = fence + (finished_at IS NULL),
                 state = CASE WHEN finished_at IS NULL THEN 'cancelled' ELSE state END
WHERE run_id = ? AND n = ? AND +delivered_seq IS NULL

-- name: send_signals
INSERT INTO signals (run_id, name, key, payload, sent_at)
SELECT id, ?2, ?3, ?4, ?5 FROM runs WHERE id = ?1 AND finished_at IS NULL
ON CONFLICT (run_id, name, key) DO NOTHING

-- name: note_runs
UPDATE runs SET progress = coalesce(?, progress), published = coalesce(?, published), kept_n = max(kept_n, ?)
WHERE id = ?

-- name: close_runs
UPDATE runs SET state = ?1, output = ?2, finished_at = ?4, owner = NULL, fence = fence + 1,
                error = CASE WHEN ?1 = 'stuck' THEN error ELSE ?3 END,
                note = CASE WHEN ?1 = 'stuck' THEN ?3 ELSE note END
WHERE id = ?5 AND fence = ?6

-- What it returned is its parent's to know: the parent's step has it.
-- name: revoke_runs
UPDATE runs SET state = 'undone', output = NULL, error = ?, finished_at = ?, fence = fence + 1
WHERE id = ? AND +parent_id = ? AND +state = 'succeeded'

-- name: sweep_closed_steps
UPDATE steps SET delivered_seq = 0, finished_at = coalesce(finished_at, ?),
                 fence = fence + (finished_at IS NULL),
                 state = CASE WHEN finished_at IS NULL THEN 'cancelled' ELSE state END
WHERE run_id = ? AND +delivered_seq IS NULL

-- name: sweep_closed_signals
UPDATE signals SET delivered_seq = 0 WHERE run_id = ? AND delivered_seq IS NULL

-- name: tell_parents
UPDATE steps SET state = ?, output = ?, error = ?, finished_at = ?, fence = fence + 1
WHERE run_id = ? AND n = ? AND +state = 'waiting' AND +kind = 'child'

-- name: undo_runs
UPDATE runs SET state = 'undoing', ending = ?, error = ?, owner = NULL, fence = fence + 1 WHERE id = ? AND fence = ?

-- As when it is freed: a run that has not said yet what it waits for is pending again, so that it is claimed. Two nodes that
-- begin one run have the same fence, so the owner is asked for, too.
-- name: park_runs
UPDATE runs SET owner = NULL, fence = fence + 1,
                state = CASE WHEN state <> 'running'
                               OR EXISTS (SELECT 1 FROM steps WHERE run_id = runs.id AND +delivered_seq IS NULL)
                               OR EXISTS (SELECT 1 FROM signals WHERE run_id = runs.id AND delivered_seq IS NULL)
                             THEN state ELSE 'pending' END
WHERE id = ? AND fence = ? AND +owner = ?

-- Continue as new, in this order: count, restart, then let the history go.

-- The digest stays that of the input the run was started with: starting it again is still the same run.
-- name: continue_run
UPDATE runs SET input = ?2, generation = generation + 1, fence = fence + 1, progress = NULL, started_at = ?3, kept_n = 0,
                base_n = max(base_n, coalesce((SELECT max(n) FROM steps WHERE run_id = ?1), 0))
WHERE id = ?1

-- name: forget_steps
DELETE FROM steps WHERE run_id = ?

-- name: forget_attempts
DELETE FROM attempts WHERE run_id = ?

-- name: forget_signals
DELETE FROM signals
WHERE run_id = ? AND delivered_seq IS NOT NULL AND delivered_seq NOT IN (SELECT value FROM json_each(?))

-- name: unread_signals
UPDATE signals SET delivered_seq = NULL WHERE run_id = ? AND delivered_seq IS NOT NULL
