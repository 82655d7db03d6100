-- Acts: one verb on many runs. Each transaction that carries out a part of an act first checks that its fence is the
-- current one, and renews the lease (`keep_act`).

-- What decides whether an act can do something to a run. What is counted is counted up to 500 only.
-- fragment: meant(r)
{r}.id, {r}.created_at, {r}.state, {r}.fence, {r}.resume, {r}.workflow, {r}.version, {r}.parent_id,
(SELECT p.state FROM runs p WHERE p.id = {r}.parent_id),
EXISTS (SELECT 1 FROM steps s WHERE s.run_id = {r}.id),
EXISTS (SELECT 1 FROM signals s WHERE s.run_id = {r}.id AND s.name = '$cancel'),
NOT EXISTS (SELECT 1 FROM signals s WHERE s.run_id = {r}.id AND s.name = '$cancel' AND +s.delivered_seq IS NULL),
(SELECT n.id FROM runs n INDEXED BY runs_retry WHERE n.retry_of = {r}.id ORDER BY n.created_at DESC LIMIT 1),
(SELECT count(*) FROM (SELECT 1 FROM steps s WHERE {r}.finished_at IS NULL AND s.run_id = {r}.id AND +s.state = 'ready'
                       AND +s.ready_at > (SELECT store_now()) AND NOT {quarantined(s)} LIMIT 500)),
(SELECT count(*) FROM (SELECT 1 FROM quarantine q CROSS JOIN steps s ON s.run_id = q.run_id AND s.n = q.n
                       WHERE q.run_id = {r}.id AND {quarantined(s)} LIMIT 500)),
(SELECT count(*) FROM (SELECT 1 FROM steps s CROSS JOIN lanes l ON l.id = s.lane
                       WHERE {r}.finished_at IS NULL AND s.run_id = {r}.id AND s.n > {r}.kept_n AND +s.kind = 'call' AND s.attempt > 0
                         AND +s.state <> 'cancelled' AND l.undo <> '' LIMIT 500))

-- Like `runs`.
-- name: meant_runs
SELECT {meant(runs)} FROM runs INDEXED BY runs_newest
WHERE namespace = ?7 AND (created_at, id) < (coalesce(?3, 1e18), coalesce(?4, '')) AND created_at >= coalesce(?8, -1e18) AND {is_meant(runs)}
ORDER BY created_at DESC, id DESC LIMIT ?6

-- Those whose ids are between ?12 and ?13, and after ?14, by their ids. ?3 and ?4 are the cursor before which they were
-- started.
-- name: meant_runs_beginning
SELECT {meant(runs)} FROM runs
WHERE id >= ?12 AND id < ?13 AND id > ?14 AND (+created_at, +id) < (coalesce(?3, 1e18), coalesce(?4, ''))
  AND +created_at >= coalesce(?8, -1e18) AND {is_meant(runs)}
ORDER BY id LIMIT ?6

-- Those of the runs ?12, after the id ?13, by their ids.
-- name: meant_runs_named
SELECT {meant(r)} FROM json_each(?12) u CROSS JOIN runs r ON r.id = u.value
WHERE r.id > ?13 AND (+r.created_at, +r.id) < (coalesce(?3, 1e18), coalesce(?4, ''))
  AND +r.created_at >= coalesce(?8, -1e18) AND {is_meant(r)}
ORDER BY r.id LIMIT ?6

-- Those of these runs that have a step with this key.
-- name: runs_with_step
SELECT s.run_id FROM json_each(?1) u CROSS JOIN steps s ON s.run_id = u.value AND s.key = ?2

-- name: plan_act
INSERT INTO acts (id, verb, actor, note, options, namespace, via, request, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, store_now())

-- SQLite has only one write transaction at a time, so the row needs no lock.
-- name: lock_plan
SELECT 1 FROM acts WHERE id = ?1 AND +state = 'planning'

-- name: add_act_runs
INSERT INTO act_runs (run_id, state, fence, act_id) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (act_id, run_id) DO NOTHING

-- name: finish_plan
UPDATE acts SET state = 'planned', preview = ?2, runs = (SELECT count(*) FROM act_runs WHERE act_id = acts.id)
WHERE id = ?1 AND +state = 'planning'
RETURNING {Act}

-- A stopped act can be carried out further. An old plan cannot: it is being forgotten.
-- name: begin_act
UPDATE acts SET state = 'running', begun_at = coalesce(begun_at, store_now()), ended_at = NULL, holder = ?2,
                lease_until = store_now() + ?3, fence = fence + 1
WHERE id = ?1 AND (+state = 'planned' OR +state = 'stopped') AND +created_at > store_now() - ?4
RETURNING fence

-- name: take_act
UPDATE acts SET holder = ?2, lease_until = store_now() + ?3, fence = fence + 1
WHERE id = ?1 AND +state = 'running' AND +lease_until <= store_now()
RETURNING fence

-- name: keep_act
UPDATE acts SET lease_until = store_now() + ?3 WHERE id = ?1 AND fence = ?2 AND +state = 'running'
RETURNING {Act}

-- name: left_of_act
SELECT run_id, state, fence FROM act_runs INDEXED BY act_runs_left WHERE act_id = ?1 AND fate IS NULL ORDER BY run_id LIMIT ?2

-- name: children_of
SELECT r.id FROM json_each(?1) u CROSS JOIN runs r INDEXED BY runs_parent ON r.parent_id = u.value

-- name: end_fates
UPDATE act_runs SET fate = ?2, note = ?3 WHERE act_id = ?4 AND run_id = ?1 AND fate IS NULL

-- The act is done when none of its runs is left.
-- name: count_fates
UPDATE acts SET done = done + ?2, changed = changed + ?3, refused = refused + ?4,
    state = CASE WHEN ?5 THEN 'done' ELSE state END, ended_at = CASE WHEN ?5 THEN store_now() END,
    lease_until = CASE WHEN NOT ?5 THEN lease_until END, holder = CASE WHEN NOT ?5 THEN holder END
WHERE id = ?1
RETURNING {Act}

-- name: stop_act
UPDATE acts SET state = 'stopped', ended_at = store_now(), holder = NULL, lease_until = NULL, fence = fence + 1
WHERE id = ?1 AND +state IN ('planning', 'planned', 'running')

-- name: act
SELECT {Act} FROM acts WHERE id = ?1

-- A plan of no run is not worth listing.
-- name: acts
SELECT {Act} FROM acts INDEXED BY acts_newest WHERE runs > 0 OR state = 'planning' ORDER BY created_at DESC, id DESC LIMIT ?1

-- name: acts_in
SELECT {Act} FROM acts INDEXED BY acts_in WHERE namespace = ?2 AND (runs > 0 OR state = 'planning') ORDER BY created_at DESC, id DESC LIMIT ?1

-- name: act_runs
SELECT {ActRun} FROM act_runs
WHERE act_id = ?1 AND run_id > ?3 AND (?2 = '[]' OR coalesce(fate, 'left') IN (SELECT value FROM json_each(?2)))
ORDER BY run_id LIMIT ?4

-- name: idle_acts
SELECT id FROM acts INDEXED BY acts_running WHERE state = 'running' AND lease_until <= (SELECT store_now()) ORDER BY lease_until LIMIT ?1
