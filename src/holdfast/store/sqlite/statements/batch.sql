-- The hot path. Each statement runs once for each row of values that batch.py makes.

-- These eight statements write hops. In issue_steps, ?17 is the node and ?18 is the time; in issue_queued, ?24 and ?25. In
-- begin_runs, ?18 is the node, which the session has looked up.

-- name: begin_runs
INSERT INTO runs (id, namespace, workflow, version, state, priority, owner, fence, input, digest, tags, parent_id,
                  parent_n, deadline, created_at, started_at, output, error, finished_at)
VALUES (?1, ?2, ?3, ?4, ?14, ?5, iif(?17 IS NULL, ?18, NULL), ?6 + (?17 IS NOT NULL), ?7, ?8, ?9, ?10,
        ?11, ?12, ?13, ?13, ?15, ?16, ?17)
ON CONFLICT (id) DO NOTHING

-- name: own_runs
SELECT 1 FROM runs WHERE id = ?1 AND fence = ?2

-- name: record_outcomes
UPDATE steps SET state = ?4, output = ?5, error = ?6, finished_at = ?7, delivered_seq = ?8, fence = fence + 1
WHERE run_id = ?1 AND n = ?2 AND fence = ?3

-- name: deliver_steps
UPDATE steps SET delivered_seq = ?3
WHERE run_id = ?1 AND n = ?2 AND +delivered_seq IS NULL AND finished_at IS NOT NULL

-- name: issue_steps
INSERT INTO steps (run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, fence, agent, attempts_max,
                   timeout_s, complete_by, input, digest, retry, issued_at, started_at, after_seq)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, coalesce(?9, ?18), ?10, ?10, iif(?10, ?17, NULL), ?11,
        ?12, iif(?10, ?18 + ?12, NULL), ?13, ?14, ?15, ?18, iif(?10, ?18, NULL), ?16)
ON CONFLICT (run_id, n) DO NOTHING

-- Steps with a queue. Those under a limit are never given to this node's agent at once.
-- name: issue_queued
INSERT INTO steps (run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, fence, agent, attempts_max,
                   timeout_s, complete_by, input, digest, retry, issued_at, started_at, after_seq, queue,
                   limit_a, limit_b, limit_c, weight_a, weight_b, weight_c)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, coalesce(?9, ?25), ?10, ?10, iif(?10, ?24, NULL), ?11,
        ?12, iif(?10, ?25 + ?12, NULL), ?13, ?14, ?15, ?25, iif(?10, ?25, NULL), ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)
ON CONFLICT (run_id, n) DO NOTHING

-- name: close_runs
UPDATE runs SET state = ?3, output = ?4, owner = NULL, fence = fence + 1,
                error = CASE WHEN ?3 = 'stuck' THEN error ELSE ?5 END,
                note = CASE WHEN ?3 = 'stuck' THEN ?5 ELSE note END,
                finished_at = CASE WHEN ?3 <> 'stuck' THEN ?6 END
WHERE id = ?1 AND fence = ?2

-- Writes what was logged. Whatever guards the rest of the operation guards this, too. A part that was written before
-- has more lines now, or is replaced by a later one.
-- name: keep_logs
INSERT INTO logs (run_id, n, attempt, twin, part, first_line, first_byte, lines, at, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (run_id, n, attempt, twin, part) DO UPDATE
SET first_line = excluded.first_line, first_byte = excluded.first_byte, lines = excluded.lines, at = excluded.at,
    body = excluded.body

-- The rest of a batch. A statement runs only if there are rows for it.

-- name: deliver_signals
UPDATE signals SET delivered_seq = ?2 WHERE id = ?1 AND +delivered_seq IS NULL

-- name: set_aside_signals
UPDATE signals SET set_aside = ?3 WHERE run_id = ?1 AND delivered_seq = ?2 AND set_aside IS NULL

-- name: answer_updates
UPDATE signals SET answer = ?3, reply = ?4, replied_at = ?5 WHERE run_id = ?1 AND delivered_seq = ?2 AND answer IS NULL

-- name: end_waits
UPDATE steps SET state = 'succeeded', output = ?4, delivered_seq = ?3, finished_at = ?5, fence = fence + 1
WHERE run_id = ?1 AND n = ?2 AND +state = 'waiting'

-- name: drop_steps
UPDATE steps SET delivered_seq = 0, finished_at = coalesce(finished_at, store_now()),
                 fence = fence + (finished_at IS NULL),
                 state = CASE WHEN finished_at IS NULL THEN 'cancelled' ELSE state END
WHERE run_id = ?1 AND n = ?2 AND +delivered_seq IS NULL

-- name: promise_steps
UPDATE steps SET due_at = issued_at + ?3 WHERE run_id = ?1 AND n = ?2

-- name: send_signals
INSERT INTO signals (run_id, name, key, payload, sent_at)
SELECT id, ?2, ?3, ?4, store_now() FROM runs WHERE id = ?1 AND finished_at IS NULL
ON CONFLICT (run_id, name, key) DO NOTHING

-- name: note_runs
UPDATE runs SET progress = coalesce(?2, progress), published = coalesce(?3, published), kept_n = max(kept_n, ?4)
WHERE id = ?1

-- name: end_child_steps
UPDATE steps SET state = ?3, output = ?4, error = ?5, finished_at = coalesce(?6, store_now()), fence = fence + 1
WHERE run_id = ?1 AND n = ?2 AND +state = 'waiting' AND +kind IN ('child', 'start')

-- A run that waits for nothing becomes pending again, so that it is claimed. Two nodes that begin the same run have the
-- same fence, so the owner is compared, too.
-- name: park_runs
UPDATE runs SET owner = NULL, fence = fence + 1, state = {freed(runs)}
WHERE id = ?1 AND fence = ?2 AND +owner IS ?3

-- name: undo_runs
UPDATE runs SET state = 'undoing', ending = ?3, error = ?4, owner = NULL, fence = fence + 1 WHERE id = ?1 AND fence = ?2

-- Continue as new. The run is written first, because its statement reads the steps, which are removed next.

-- The digest stays that of the first input, so that starting the run again with that input is still a duplicate.
-- name: continue_runs
UPDATE runs SET input = ?2, generation = generation + 1, fence = fence + 1, progress = NULL, started_at = ?3, kept_n = 0,
                base_n = max(base_n, coalesce((SELECT max(n) FROM steps WHERE run_id = ?1), 0))
WHERE id = ?1

-- name: forget_steps
DELETE FROM steps WHERE run_id = ?1

-- name: forget_attempts
DELETE FROM attempts WHERE run_id = ?1

-- name: forget_logs
DELETE FROM logs WHERE run_id = ?1

-- Signals that no step took belong to the next generation. They lose their place in the history first, because
-- forget_signals removes all that have one.
-- name: unread_signals
UPDATE signals SET delivered_seq = NULL WHERE run_id = ?1 AND delivered_seq = ?2

-- The answers to updates outlive the history, so that the same key gets the same answer.
-- name: keep_answers
UPDATE signals SET delivered_seq = 0 WHERE run_id = ?1 AND delivered_seq > 0 AND answer IS NOT NULL

-- name: forget_signals
DELETE FROM signals WHERE run_id = ?1 AND delivered_seq IS NOT NULL AND answer IS NULL

-- What agents write. They name each step by (run, n, fence), so only steps that they have are changed.

-- Copies the attempt from the step's row, before the row is changed.
-- name: keep_attempts
INSERT INTO attempts (run_id, n, attempt, ending, agent, error, started_at, finished_at, ready_at)
SELECT run_id, n, attempt, ?4, agent, ?5, started_at, store_now(), ready_at FROM steps WHERE run_id = ?1 AND n = ?2 AND fence = ?3

-- name: retry_steps
UPDATE steps SET state = 'ready', fence = fence + 1, agent = NULL, complete_by = NULL, excused = excused + ?6,
                 losses = losses + ?7, timeouts = timeouts + ?8, throttled = throttled + ?9, error = ?5,
                 ready_at = store_now() + ?4
WHERE run_id = ?1 AND n = ?2 AND fence = ?3

-- name: quarantine_steps
UPDATE steps SET state = 'ready', fence = fence + 1, agent = NULL, complete_by = NULL, losses = losses + ?5,
                 timeouts = timeouts + ?6, throttled = throttled + ?7, error = ?4, ready_at = {never}
WHERE run_id = ?1 AND n = ?2 AND fence = ?3

-- name: hand_back_steps
UPDATE steps SET state = 'ready', fence = fence + 1, agent = NULL, complete_by = NULL, excused = excused + 1
WHERE run_id = ?1 AND n = ?2 AND fence = ?3

-- name: save_steps
UPDATE steps SET checkpoint = coalesce(?4, checkpoint), progress = coalesce(?5, progress)
WHERE run_id = ?1 AND n = ?2 AND fence = ?3

-- Holds the runs of steps that are handed back because the agent's code cannot read what was recorded for them.
-- name: hold_runs
UPDATE runs SET resume = state, state = 'held', note = ?2, owner = NULL, fence = fence + 1
WHERE id = ?1 AND +state IN ('pending', 'running', 'undoing')
RETURNING id, note

-- Finds a row if the same report was accepted before, and its answer got lost.
-- name: reported_before
SELECT 1 FROM steps WHERE run_id = ?1 AND n = ?2 AND fence = ?3 + 1 AND agent = ?4 AND +state = ?5

-- name: refuse_report
INSERT INTO attempts (run_id, n, attempt, ending, agent, error, finished_at)
SELECT run_id, n, attempt, 'refused', ?3, ?4, store_now() FROM steps WHERE run_id = ?1 AND n = ?2

-- When a run may begin. The deadline of a run is counted from then, and so is a span within which it is due.
-- fragment: begin_at
coalesce(?14, store_now() + ?15)

-- name: start_runs
INSERT INTO runs (id, namespace, workflow, version, state, priority, input, digest, tags, parent_id, parent_n, deadline,
                  created_at, started_by, started_n, begin_at, fair, under, queue, limit_a, limit_b, limit_c, weight_a, weight_b, weight_c,
                  due_at)
VALUES (?1, ?2, ?3, ?4, 'pending', ?5, ?6, ?7, ?8, ?9, ?10, max(store_now(), coalesce({begin_at}, 0)) + ?11, store_now(),
        ?12, ?13, iif({begin_at} > store_now(), {begin_at}, NULL), ?16, ?17, iif({begin_at} > store_now(), -1 - ?18, ?18),
        ?19, ?20, ?21, ?22, ?23, ?24, coalesce(?25, max(store_now(), coalesce({begin_at}, 0)) + ?26))
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: started_as
SELECT id, workflow, digest FROM runs WHERE id IN (SELECT value FROM json_each(?1))
