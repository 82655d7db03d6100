-- Retention: ended runs are removed, oldest first, some hundred rows per transaction. A run is removed after its
-- children, and after all steps that joined it have ended. It stays while a run above it is open, because that one may
-- have to undo it. It stays, too, while a run above it did not succeed and is kept: a retry of that one may have to undo
-- it. It also stays while an open run may go on from it.

-- For the transaction that prunes. Because of the LIMIT, a planner without fresh statistics would scan whole tables.
-- name: by_index
SET LOCAL enable_seqscan = off

-- name: old_runs
SELECT id, finished_at FROM holdfast.runs
WHERE state = $1 AND finished_at IS NOT NULL AND finished_at < $2 AND (finished_at, id) > ($3, $4)
  AND ($6::text IS NULL OR namespace = $6)
ORDER BY finished_at, id LIMIT $5

-- name: count_old_runs
SELECT count(*) FROM holdfast.runs WHERE state = $1 AND finished_at IS NOT NULL AND finished_at < $2
  AND ($3::text IS NULL OR namespace = $3)

-- Runs that did not succeed are kept if they ended at $2 or later, or in one of the states $3.
-- name: prunable
SELECT r.id FROM holdfast.runs r
WHERE r.id = ANY($1::text[]) AND r.finished_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM holdfast.runs c WHERE c.parent_id = r.id)
  AND NOT EXISTS (SELECT FROM holdfast.inherited i JOIN holdfast.runs n ON n.id = i.run_id
                  WHERE i.child = r.id AND n.finished_at IS NULL)
  AND NOT EXISTS (
      WITH RECURSIVE above(parent_id, state, finished_at) AS (
          SELECT p.parent_id, p.state, p.finished_at FROM holdfast.runs p WHERE p.id = r.parent_id
          UNION ALL
          SELECT p.parent_id, p.state, p.finished_at FROM holdfast.runs p JOIN above a ON p.id = a.parent_id)
      SELECT FROM above WHERE finished_at IS NULL OR (state <> 'succeeded'
          AND (finished_at >= $2::timestamptz OR state = ANY($3::text[]))))
ORDER BY r.finished_at, r.id
FOR UPDATE OF r SKIP LOCKED

-- The runs above these that did not succeed. Somebody could retry them, and they need what is below them for that.
-- name: retryable_above
WITH RECURSIVE above(id, up) AS (
    SELECT id, parent_id FROM holdfast.runs WHERE id = ANY($1::text[]) AND parent_id IS NOT NULL
    UNION
    SELECT a.id, p.parent_id FROM holdfast.runs p JOIN above a ON p.id = a.up WHERE p.parent_id IS NOT NULL)
SELECT a.id, p.id FROM above a JOIN holdfast.runs p ON p.id = a.up WHERE p.state <> 'succeeded'

-- Whoever retries a run locks it and then those below it. So nobody who has locked one of those may wait here.
-- name: lock_free_runs
SELECT id FROM holdfast.runs WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE SKIP LOCKED

-- name: mark_removing
UPDATE holdfast.runs SET removing = true WHERE id = ANY($1::text[]) AND NOT removing

-- name: is_removing
SELECT removing FROM holdfast.runs WHERE id = $1

-- Runs that a step has joined. Asked after their rows are locked, because nobody can join them from then on.
-- name: joined
SELECT DISTINCT run_id FROM holdfast.joins WHERE run_id = ANY($1::text[])

-- Rows are found by their keys where somebody may change them meanwhile: who reseals, or the leader. Their `ctid` changes then,
-- and a row that is looked for by its old one stays.
-- name: prune_steps
DELETE FROM holdfast.steps WHERE (run_id, n) IN (
    SELECT run_id, n FROM holdfast.steps WHERE run_id = ANY($1::text[]) LIMIT $2)

-- name: prune_attempts
DELETE FROM holdfast.attempts WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM holdfast.attempts WHERE run_id = ANY($1::text[]) LIMIT $2))

-- name: prune_logs
DELETE FROM holdfast.logs WHERE (run_id, n, attempt, twin, part) IN (
    SELECT run_id, n, attempt, twin, part FROM holdfast.logs WHERE run_id = ANY($1::text[]) LIMIT $2)

-- name: prune_ask_people
DELETE FROM holdfast.ask_people WHERE (ask, who) IN (
    SELECT p.ask, p.who FROM holdfast.asks a JOIN holdfast.ask_people p ON p.ask = a.id WHERE a.run_id = ANY($1::text[]) LIMIT $2)

-- name: prune_asks
DELETE FROM holdfast.asks WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.asks WHERE run_id = ANY($1::text[]) LIMIT $2))

-- name: prune_signals
DELETE FROM holdfast.signals WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.signals WHERE run_id = ANY($1::text[]) LIMIT $2))

-- name: prune_quarantine
DELETE FROM holdfast.quarantine WHERE (run_id, n) IN (
    SELECT run_id, n FROM holdfast.quarantine WHERE run_id = ANY($1::text[]) LIMIT $2)

-- name: prune_twins
DELETE FROM holdfast.twins WHERE (run_id, n) IN (
    SELECT run_id, n FROM holdfast.twins WHERE run_id = ANY($1::text[]) LIMIT $2)

-- name: prune_joins
DELETE FROM holdfast.joins WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM holdfast.joins WHERE waiter_id = ANY($1::text[]) LIMIT $2))

-- name: prune_gathers
DELETE FROM holdfast.gathers WHERE key = ANY(ARRAY(
    SELECT key FROM holdfast.gathers WHERE run_id = ANY($1::text[]) LIMIT $2))

-- name: prune_gathered
DELETE FROM holdfast.gathered WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.gathered WHERE run_id = ANY($1::text[]) LIMIT $2))

-- name: prune_inherited
DELETE FROM holdfast.inherited WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM holdfast.inherited WHERE run_id = ANY($1::text[]) LIMIT $2))

-- The audit outlives its runs.
-- name: prune_journal
DELETE FROM holdfast.journal WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM holdfast.journal WHERE run_id = ANY($1::text[]) AND run_id IS NOT NULL AND via IS NULL LIMIT $2))

-- name: prune_runs
DELETE FROM holdfast.runs WHERE id = ANY($1::text[])

-- name: old_alerts
SELECT id FROM holdfast.alerts WHERE cleared_at < $1 ORDER BY cleared_at LIMIT $2

-- name: prune_deliveries
DELETE FROM holdfast.deliveries d USING unnest($1::bigint[]) u(id) WHERE d.alert_id = u.id

-- name: prune_alerts
DELETE FROM holdfast.alerts a USING unnest($1::bigint[]) u(id) WHERE a.id = u.id

-- A node that still has a run or a step stays until that is reclaimed.
-- name: left_nodes
SELECT id FROM holdfast.nodes n WHERE retired_at < $1
  AND NOT EXISTS (SELECT FROM holdfast.runs WHERE owner = n.id)
  AND NOT EXISTS (SELECT FROM holdfast.steps WHERE agent = n.id AND state = 'running')
ORDER BY retired_at LIMIT $2

-- name: forget_nodes
DELETE FROM holdfast.nodes n USING unnest($1::text[]) u(id) WHERE n.id = u.id AND n.retired_at < $2

-- name: old_journal
SELECT id FROM holdfast.journal WHERE run_id IS NULL AND via IS NULL AND at < $1 ORDER BY at LIMIT $2

-- name: forget_journal
DELETE FROM holdfast.journal j USING unnest($1::bigint[]) u(id) WHERE j.id = u.id AND j.at < $2 AND j.via IS NULL

-- name: old_audit
SELECT id FROM holdfast.journal WHERE via IS NOT NULL AND at < $1 ORDER BY at LIMIT $2

-- Until the end of the transaction, or until `end_retention`, triggers allow the removal of what is old enough of the audit.
-- name: begin_retention
SELECT set_config('holdfast.retention', 'on', true)

-- name: end_retention
SELECT set_config('holdfast.retention', '', true)

-- name: forget_audit
DELETE FROM holdfast.journal j USING unnest($1::bigint[]) u(id) WHERE j.id = u.id AND j.at < $2 AND j.via IS NOT NULL

-- Acts that ended before $1, and plans that nobody began and that were made or given up before $2.
-- name: old_acts
SELECT id FROM holdfast.acts
WHERE created_at < greatest($1::timestamptz, $2::timestamptz)
  AND (ended_at < $1 OR (begun_at IS NULL AND coalesce(ended_at, created_at) < $2))
ORDER BY created_at LIMIT $3 FOR UPDATE

-- name: forget_act_runs
DELETE FROM holdfast.act_runs
WHERE act_id = $1 AND run_id = ANY(ARRAY(SELECT run_id FROM holdfast.act_runs WHERE act_id = $1 ORDER BY run_id LIMIT $2))

-- name: forget_acts
DELETE FROM holdfast.acts WHERE id = $1 AND state <> 'running'
  AND NOT EXISTS (SELECT FROM holdfast.act_runs WHERE act_id = $1)
