-- Retention: ended runs are removed, oldest first, some hundred rows per transaction. A run is removed after its
-- children, and after all steps that joined it have ended. It stays while a run above it is open, because that one may
-- have to undo it. It stays, too, while a run above it did not succeed and is kept: a retry of that one may have to undo
-- it. It also stays while an open run may go on from it.

-- name: old_runs
SELECT id, finished_at FROM runs INDEXED BY runs_ended
WHERE state = ?1 AND finished_at IS NOT NULL AND finished_at < ?2 AND (finished_at, id) > (?3, ?4)
  AND (?6 IS NULL OR namespace = ?6)
ORDER BY finished_at, id LIMIT ?5

-- name: count_old_runs
SELECT count(*) FROM runs INDEXED BY runs_ended WHERE state = ?1 AND finished_at IS NOT NULL AND finished_at < ?2
  AND (?3 IS NULL OR namespace = ?3)

-- Runs that did not succeed are kept if they ended at ?2 or later, or in one of the states ?3.
-- name: prunable
SELECT r.id FROM json_each(?1) u CROSS JOIN runs r ON r.id = u.value
WHERE r.finished_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM runs c INDEXED BY runs_parent WHERE c.parent_id = r.id)
  AND NOT EXISTS (SELECT 1 FROM inherited i INDEXED BY inherited_child CROSS JOIN runs n ON n.id = i.run_id
                  WHERE i.child = r.id AND n.finished_at IS NULL)
  AND NOT EXISTS (
      WITH RECURSIVE above (parent_id, state, finished_at) AS (
          SELECT p.parent_id, p.state, p.finished_at FROM runs p WHERE p.id = r.parent_id
          UNION ALL
          SELECT p.parent_id, p.state, p.finished_at FROM above a CROSS JOIN runs p ON p.id = a.parent_id)
      SELECT 1 FROM above WHERE finished_at IS NULL OR (state <> 'succeeded'
          AND (finished_at >= ?2 OR state IN (SELECT value FROM json_each(?3)))))
ORDER BY r.finished_at, r.id

-- The runs above these that did not succeed. Somebody could retry them, and they need what is below them for that.
-- name: retryable_above
WITH RECURSIVE above (id, up) AS (
    SELECT r.id, r.parent_id FROM json_each(?1) u CROSS JOIN runs r ON r.id = u.value WHERE r.parent_id IS NOT NULL
    UNION
    SELECT a.id, p.parent_id FROM above a CROSS JOIN runs p ON p.id = a.up WHERE p.parent_id IS NOT NULL)
SELECT a.id, p.id FROM above a CROSS JOIN runs p ON p.id = a.up WHERE p.state <> 'succeeded'

-- name: lock_free_runs
SELECT r.id FROM json_each(?1) u CROSS JOIN runs r ON r.id = u.value

-- name: mark_removing
UPDATE runs SET removing = 1 WHERE id IN (SELECT value FROM json_each(?1)) AND removing = 0

-- name: is_removing
SELECT removing FROM runs WHERE id = ?1

-- name: joined
SELECT DISTINCT j.run_id FROM json_each(?1) u CROSS JOIN joins j INDEXED BY joins_of ON j.run_id = u.value

-- name: prune_steps
DELETE FROM steps WHERE rowid IN (
    SELECT t.rowid FROM json_each(?1) u CROSS JOIN steps t ON t.run_id = u.value LIMIT ?2)

-- name: prune_attempts
DELETE FROM attempts WHERE rowid IN (
    SELECT t.rowid FROM json_each(?1) u CROSS JOIN attempts t ON t.run_id = u.value LIMIT ?2)

-- name: prune_logs
DELETE FROM logs WHERE rowid IN (
    SELECT t.rowid FROM json_each(?1) u CROSS JOIN logs t ON t.run_id = u.value LIMIT ?2)

-- name: prune_ask_people
DELETE FROM ask_people WHERE (ask, who) IN (
    SELECT p.ask, p.who FROM json_each(?1) u CROSS JOIN asks a ON a.run_id = u.value CROSS JOIN ask_people p ON p.ask = a.id LIMIT ?2)

-- name: prune_asks
DELETE FROM asks WHERE rowid IN (
    SELECT t.rowid FROM json_each(?1) u CROSS JOIN asks t ON t.run_id = u.value LIMIT ?2)

-- name: prune_signals
DELETE FROM signals WHERE rowid IN (
    SELECT t.rowid FROM json_each(?1) u CROSS JOIN signals t ON t.run_id = u.value LIMIT ?2)

-- name: prune_quarantine
DELETE FROM quarantine WHERE rowid IN (
    SELECT t.rowid FROM json_each(?1) u CROSS JOIN quarantine t ON t.run_id = u.value LIMIT ?2)

-- name: prune_twins
DELETE FROM twins WHERE rowid IN (
    SELECT t.rowid FROM json_each(?1) u CROSS JOIN twins t ON t.run_id = u.value LIMIT ?2)

-- name: prune_joins
DELETE FROM joins WHERE rowid IN (
    SELECT t.rowid FROM json_each(?1) u CROSS JOIN joins t ON t.waiter_id = u.value LIMIT ?2)

-- name: prune_gathers
DELETE FROM gathers WHERE key IN (
    SELECT t.key FROM json_each(?1) u CROSS JOIN gathers t INDEXED BY gathers_of ON t.run_id = u.value LIMIT ?2)

-- name: prune_gathered
DELETE FROM gathered WHERE id IN (
    SELECT t.id FROM json_each(?1) u CROSS JOIN gathered t INDEXED BY gathered_of ON t.run_id = u.value LIMIT ?2)

-- name: prune_inherited
DELETE FROM inherited WHERE (run_id, key) IN (
    SELECT t.run_id, t.key FROM json_each(?1) u CROSS JOIN inherited t ON t.run_id = u.value LIMIT ?2)

-- The audit outlives its runs.
-- name: prune_journal
DELETE FROM journal WHERE rowid IN (
    SELECT t.rowid FROM json_each(?1) u CROSS JOIN journal t INDEXED BY journal_of ON t.run_id = u.value
    WHERE t.via IS NULL LIMIT ?2)

-- name: prune_runs
DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?1))

-- name: old_alerts
SELECT id FROM alerts INDEXED BY alerts_cleared WHERE cleared_at < ?1 ORDER BY cleared_at LIMIT ?2

-- name: prune_deliveries
DELETE FROM deliveries WHERE alert_id = ?1

-- name: prune_alerts
DELETE FROM alerts WHERE id = ?1

-- A node that still has a run or a step stays until that is reclaimed.
-- name: left_nodes
SELECT id FROM nodes n INDEXED BY nodes_left WHERE retired_at < ?1
  AND NOT EXISTS (SELECT 1 FROM runs INDEXED BY runs_owned WHERE owner = n.id)
  AND NOT EXISTS (SELECT 1 FROM steps INDEXED BY steps_held WHERE state = 'running' AND agent = n.id)
ORDER BY retired_at LIMIT ?2

-- name: forget_nodes
DELETE FROM nodes WHERE id = ?1 AND retired_at < ?2

-- name: old_journal
SELECT id FROM journal INDEXED BY journal_own WHERE run_id IS NULL AND via IS NULL AND at < ?1 ORDER BY at LIMIT ?2

-- name: forget_journal
DELETE FROM journal WHERE id = ?1 AND at < ?2 AND via IS NULL

-- name: old_audit
SELECT id FROM journal INDEXED BY journal_audit WHERE via IS NOT NULL AND at < ?1 ORDER BY at LIMIT ?2

-- Until `end_retention`, in the same transaction, triggers allow the removal of what is old enough of the audit.
-- name: begin_retention
INSERT INTO retention (since) VALUES (store_now())

-- name: end_retention
DELETE FROM retention

-- name: forget_audit
DELETE FROM journal WHERE id = ?1 AND at < ?2 AND via IS NOT NULL

-- Acts that ended before ?1, and plans that nobody began and that were made or given up before ?2.
-- name: old_acts
SELECT id FROM acts INDEXED BY acts_newest
WHERE created_at < max(?1, ?2) AND (ended_at < ?1 OR (begun_at IS NULL AND coalesce(ended_at, created_at) < ?2))
ORDER BY created_at LIMIT ?3

-- name: forget_act_runs
DELETE FROM act_runs WHERE act_id = ?1 AND run_id IN (SELECT run_id FROM act_runs WHERE act_id = ?1 ORDER BY run_id LIMIT ?2)

-- name: forget_acts
DELETE FROM acts WHERE id = ?1 AND state <> 'running' AND NOT EXISTS (SELECT 1 FROM act_runs WHERE act_id = acts.id)
