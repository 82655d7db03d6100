-- Acts: one verb on many runs. Each transaction that carries out a part of an act first checks that its fence is the
-- current one, and renews the lease (`keep_act`). That locks the act before any run.

-- What decides whether an act can do something to a run. What is counted is counted up to 500 only.
-- fragment: meant(r)
{r}.id, {r}.created_at, {r}.state, {r}.fence, {r}.resume, {r}.workflow, {r}.version, {r}.parent_id,
(SELECT p.state FROM holdfast.runs p WHERE p.id = {r}.parent_id),
EXISTS (SELECT FROM holdfast.steps s WHERE s.run_id = {r}.id),
EXISTS (SELECT FROM holdfast.signals s WHERE s.run_id = {r}.id AND s.name = '$cancel'),
NOT EXISTS (SELECT FROM holdfast.signals s WHERE s.run_id = {r}.id AND s.name = '$cancel' AND s.delivered_seq IS NULL),
(SELECT n.id FROM holdfast.runs n WHERE n.retry_of = {r}.id ORDER BY n.created_at DESC LIMIT 1),
(SELECT count(*) FROM (SELECT FROM holdfast.steps s WHERE {r}.finished_at IS NULL AND s.run_id = {r}.id AND s.state = 'ready'
                       AND s.ready_at > clock_timestamp() AND NOT {quarantined(s)} LIMIT 500) few),
(SELECT count(*) FROM (SELECT FROM holdfast.quarantine q JOIN holdfast.steps s ON s.run_id = q.run_id AND s.n = q.n
                       WHERE q.run_id = {r}.id AND {quarantined(s)} LIMIT 500) few),
(SELECT count(*) FROM (SELECT FROM holdfast.steps s JOIN holdfast.lanes l ON l.id = s.lane
                       WHERE {r}.finished_at IS NULL AND s.run_id = {r}.id AND s.n > {r}.kept_n AND s.kind = 'call' AND s.attempt > 0
                         AND s.state <> 'cancelled' AND l.undo <> '' LIMIT 500) few)

-- Like `runs`.
-- name: meant_runs
SELECT {meant(r)} FROM holdfast.runs r
WHERE r.namespace = $7 AND (r.created_at, r.id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, ''))
  AND r.created_at >= coalesce($8::timestamptz, '-infinity') AND {is_meant(r)}
ORDER BY r.created_at DESC, r.id DESC LIMIT $6

-- Those whose ids are between $12 and $13, and after $14, by their ids. $3 and $4 are the cursor before which they were
-- started.
-- name: meant_runs_beginning
SELECT {meant(r)} FROM holdfast.runs r
WHERE r.id >= $12 AND r.id < $13 AND r.id > $14
  AND (r.created_at, r.id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, ''))
  AND r.created_at >= coalesce($8::timestamptz, '-infinity') AND {is_meant(r)}
ORDER BY r.id LIMIT $6

-- Those of the runs $12, after the id $13, by their ids.
-- name: meant_runs_named
SELECT {meant(r)} FROM unnest($12::text[]) AS u (id) JOIN holdfast.runs r ON r.id = u.id
WHERE r.id > $13 AND (r.created_at, r.id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, ''))
  AND r.created_at >= coalesce($8::timestamptz, '-infinity') AND {is_meant(r)}
ORDER BY r.id LIMIT $6

-- Those of these runs that have a step with this key.
-- name: runs_with_step
SELECT run_id FROM holdfast.steps WHERE run_id = ANY($1::text[]) AND key = $2

-- name: plan_act
INSERT INTO holdfast.acts (id, verb, actor, note, options, namespace, via, request)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: lock_plan
SELECT 1 FROM holdfast.acts WHERE id = $1 AND state = 'planning' FOR UPDATE

-- name: add_act_runs
INSERT INTO holdfast.act_runs (run_id, state, fence, act_id)
SELECT u.run_id, u.state, u.fence, $4 FROM unnest($1::text[], $2::text[], $3::int[]) u(run_id, state, fence)
ON CONFLICT (act_id, run_id) DO NOTHING

-- name: finish_plan
UPDATE holdfast.acts a SET state = 'planned', preview = $2, runs = (SELECT count(*) FROM holdfast.act_runs WHERE act_id = a.id)
WHERE id = $1 AND state = 'planning'
RETURNING {Act}

-- A stopped act can be carried out further. An old plan cannot: it is being forgotten.
-- name: begin_act
UPDATE holdfast.acts SET state = 'running', begun_at = coalesce(begun_at, clock_timestamp()), ended_at = NULL, holder = $2,
                lease_until = clock_timestamp() + make_interval(secs => $3), fence = fence + 1
WHERE id = $1 AND state IN ('planned', 'stopped') AND created_at > clock_timestamp() - make_interval(secs => $4)
RETURNING fence

-- name: take_act
UPDATE holdfast.acts SET holder = $2, lease_until = clock_timestamp() + make_interval(secs => $3), fence = fence + 1
WHERE id = $1 AND state = 'running' AND lease_until <= clock_timestamp()
RETURNING fence

-- name: keep_act
UPDATE holdfast.acts SET lease_until = clock_timestamp() + make_interval(secs => $3)
WHERE id = $1 AND fence = $2 AND state = 'running'
RETURNING {Act}

-- name: left_of_act
SELECT run_id, state, fence FROM holdfast.act_runs WHERE act_id = $1 AND fate IS NULL ORDER BY run_id LIMIT $2

-- name: children_of
SELECT r.id FROM unnest($1::text[]) u(id)
CROSS JOIN LATERAL (SELECT id FROM holdfast.runs WHERE parent_id = u.id OFFSET 0) r

-- name: end_fates
UPDATE holdfast.act_runs a SET fate = u.fate, note = u.note
FROM unnest($1::text[], $2::text[], $3::text[]) u(run_id, fate, note)
WHERE a.act_id = $4 AND a.run_id = u.run_id AND a.fate IS NULL

-- The act is done when none of its runs is left.
-- name: count_fates
UPDATE holdfast.acts SET done = done + $2, changed = changed + $3, refused = refused + $4,
    state = CASE WHEN $5::boolean THEN 'done' ELSE state END, ended_at = CASE WHEN $5 THEN clock_timestamp() END,
    lease_until = CASE WHEN NOT $5 THEN lease_until END, holder = CASE WHEN NOT $5 THEN holder END
WHERE id = $1
RETURNING {Act}

-- name: stop_act
UPDATE holdfast.acts SET state = 'stopped', ended_at = clock_timestamp(), holder = NULL, lease_until = NULL, fence = fence + 1
WHERE id = $1 AND state IN ('planning', 'planned', 'running')

-- name: act
SELECT {Act} FROM holdfast.acts WHERE id = $1

-- A plan of no run is not worth listing.
-- name: acts
SELECT {Act} FROM holdfast.acts WHERE runs > 0 OR state = 'planning' ORDER BY created_at DESC, id DESC LIMIT $1

-- name: acts_in
SELECT {Act} FROM holdfast.acts WHERE namespace = $2 AND (runs > 0 OR state = 'planning') ORDER BY created_at DESC, id DESC LIMIT $1

-- name: act_runs
SELECT {ActRun} FROM holdfast.act_runs
WHERE act_id = $1 AND run_id > $3 AND (cardinality($2::text[]) = 0 OR coalesce(fate, 'left') = ANY($2))
ORDER BY run_id LIMIT $4

-- name: idle_acts
SELECT id FROM holdfast.acts WHERE state = 'running' AND lease_until <= clock_timestamp() ORDER BY lease_until LIMIT $1
