-- Alerts and their outbox. The leader raises, logs and clears alerts. The holder of the lease `alerts` routes and sends
-- them.

-- name: alert_stuck_runs
INSERT INTO holdfast.alerts (kind, run_id, message, key, last_at)
SELECT 'run stuck', u.run_id, u.message, 'run stuck:' || u.run_id, clock_timestamp()
FROM unnest($1::text[], $2::text[]) u(run_id, message)
ON CONFLICT (key) WHERE cleared_at IS NULL DO UPDATE SET times = alerts.times + 1, last_at = excluded.last_at

-- n is a step. 0 is the run itself. A negative n is a signal that was set aside, with the place -n in the history.
-- name: note_failures
INSERT INTO holdfast.failures (run_id, n) SELECT u.run_id, u.n FROM unnest($1::text[], $2::int[]) u(run_id, n)

-- name: failures
SELECT f.id, f.run_id, f.n, r.workflow, r.state, r.parent_id,
       CASE WHEN f.n = 0 AND r.state = 'held' THEN r.note WHEN f.n = 0 THEN r.error WHEN f.n < 0 THEN g.set_aside
            ELSE s.error END,
       s.key, coalesce(s.name, g.name), s.kind, coalesce(s.attempt, 0), coalesce(s.losses, 0), coalesce(s.excused, 0),
       coalesce(s.attempts_max, 1), coalesce(s.timeouts, 0), coalesce(s.throttled, 0),
       CASE WHEN {quarantined(s)} THEN q.fingerprint END
FROM (SELECT id, run_id, n FROM holdfast.failures ORDER BY id LIMIT $1) f
LEFT JOIN holdfast.runs r ON r.id = f.run_id
LEFT JOIN holdfast.steps s ON s.run_id = f.run_id AND s.n = f.n
LEFT JOIN holdfast.quarantine q ON q.run_id = f.run_id AND q.n = f.n
LEFT JOIN holdfast.signals g ON f.n < 0 AND g.run_id = f.run_id AND g.delivered_seq = -f.n
ORDER BY f.id

-- name: forget_failures
DELETE FROM holdfast.failures f USING unnest($1::bigint[]) u(id) WHERE f.id = u.id

-- name: raise_alerts
INSERT INTO holdfast.alerts (kind, level, key, run_id, message, times, about, last_at)
SELECT u.kind, u.level, u.key, u.run_id, u.message, u.times, u.about, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::text[])
     u(kind, level, key, run_id, message, times, about)
ON CONFLICT (key) WHERE cleared_at IS NULL
DO UPDATE SET times = alerts.times + excluded.times, last_at = excluded.last_at

-- name: clear_alerts
UPDATE holdfast.alerts a SET cleared_at = clock_timestamp() FROM unnest($1::bigint[]) u(id)
WHERE a.id = u.id AND a.cleared_at IS NULL
RETURNING a.run_id

-- name: clear_stuck
UPDATE holdfast.alerts SET cleared_at = clock_timestamp() WHERE key = 'run stuck:' || $1 AND cleared_at IS NULL

-- name: unlogged_alerts
SELECT {Alert} FROM holdfast.alerts WHERE logged = 0 ORDER BY id LIMIT $1

-- name: log_alerts
UPDATE holdfast.alerts a SET logged = 1 FROM unnest($1::bigint[]) u(id) WHERE a.id = u.id AND a.logged = 0

-- name: alerts
SELECT {Alert} FROM holdfast.alerts ORDER BY id DESC LIMIT $1

-- name: open_alerts
SELECT {Alert} FROM holdfast.alerts WHERE cleared_at IS NULL ORDER BY id DESC LIMIT $1

-- name: alerts_in
SELECT {Alert} FROM holdfast.alerts WHERE namespace = $2 ORDER BY id DESC LIMIT $1

-- name: open_alerts_in
SELECT {Alert} FROM holdfast.alerts WHERE cleared_at IS NULL AND namespace = $2 ORDER BY id DESC LIMIT $1

-- name: alert_in
SELECT 1 FROM holdfast.alerts WHERE id = $1 AND namespace = $2

-- name: open_kinds
SELECT k.kind FROM unnest($1::text[]) k(kind)
CROSS JOIN LATERAL (SELECT 1 FROM holdfast.alerts a WHERE a.cleared_at IS NULL AND a.kind = k.kind ORDER BY a.id LIMIT 1) a

-- name: open_alerts_of
SELECT {Alert} FROM holdfast.alerts WHERE cleared_at IS NULL AND kind = $1 AND id > $2 ORDER BY id LIMIT $3

-- name: deliveries
SELECT {Delivery} FROM holdfast.deliveries WHERE alert_id = ANY($1::bigint[]) ORDER BY id

-- name: unrouted_alerts
SELECT routed, {Alert} FROM holdfast.alerts
WHERE routed = 0 OR (routed = 1 AND cleared_at IS NOT NULL) ORDER BY id LIMIT $1

-- name: route_alerts
UPDATE holdfast.alerts a SET routed = u.routed FROM unnest($1::bigint[], $2::int[]) u(id, routed)
WHERE a.id = u.id AND a.routed < u.routed

-- name: add_deliveries
INSERT INTO holdfast.deliveries (id, alert_id, channel, event, next_try_at)
SELECT u.id, u.alert_id, u.channel, u.event, clock_timestamp()
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) u(id, alert_id, channel, event)
ON CONFLICT (alert_id, event, channel) DO NOTHING

-- name: due_deliveries
SELECT d.id, d.event, d.attempts + 1, {Alert(a)}
FROM holdfast.deliveries d JOIN holdfast.alerts a ON a.id = d.alert_id
WHERE d.channel = $1 AND d.sent_at IS NULL AND d.given_up_at IS NULL AND d.next_try_at <= (SELECT clock_timestamp())
ORDER BY d.next_try_at LIMIT $2 FOR UPDATE OF d SKIP LOCKED

-- A claim counts as an attempt. If nobody ends the delivery in time, it is due again.
-- name: claim_deliveries
UPDATE holdfast.deliveries d SET attempts = d.attempts + 1, next_try_at = clock_timestamp() + make_interval(secs => $2)
FROM unnest($1::text[]) u(id) WHERE d.id = u.id

-- name: end_delivery
UPDATE holdfast.deliveries SET last_error = $3,
    sent_at = CASE WHEN $3::text IS NULL THEN clock_timestamp() END,
    given_up_at = CASE WHEN $3::text IS NOT NULL AND $4::float8 IS NULL THEN clock_timestamp() END,
    next_try_at = clock_timestamp() + make_interval(secs => coalesce($4::float8, 0))
WHERE id = $1 AND attempts = $2 AND sent_at IS NULL
RETURNING alert_id, sent_at

-- name: note_sent
UPDATE holdfast.alerts SET sent_at = coalesce(sent_at, $2) WHERE id = $1

-- Gives up deliveries whose channel no longer exists: they have been due for more than $1 seconds.
-- name: expire_deliveries
UPDATE holdfast.deliveries SET given_up_at = clock_timestamp(), last_error = coalesce(last_error, 'nobody sent it')
WHERE sent_at IS NULL AND given_up_at IS NULL AND next_try_at < clock_timestamp() - make_interval(secs => $1)

-- The step of each lane and priority that waits longest for an agent, if longer than $1 seconds. Each costs one look
-- into the index. Steps behind a gate do not wait for an agent.
-- name: late_steps
WITH RECURSIVE places(lane, name, priority) AS (
    SELECT l.id, l.name, {top_priority(l.id)} FROM holdfast.lanes l WHERE {passable(l)}
    UNION ALL
    SELECT p.lane, p.name, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL)
SELECT p.name, w.run_id, w.ready_at FROM places p
CROSS JOIN LATERAL (
    SELECT s.run_id, s.ready_at FROM holdfast.steps s
    WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority = p.priority AND s.queue = 0
      AND s.ready_at < (SELECT clock_timestamp() - make_interval(secs => $1))
      AND (SELECT {goes_on(r)} FROM holdfast.runs r WHERE r.id = s.run_id)
    ORDER BY s.ready_at LIMIT 1) w
WHERE p.priority IS NOT NULL
UNION ALL
SELECT l.name, w.run_id, w.ready_at FROM holdfast.lanes l
CROSS JOIN LATERAL (
    SELECT s.run_id, s.ready_at, s.queue FROM holdfast.steps s
    WHERE s.state = 'ready' AND s.queue > 0 AND s.lane = l.id
      AND s.ready_at < (SELECT clock_timestamp() - make_interval(secs => $1))
      AND (SELECT {goes_on(r)} FROM holdfast.runs r WHERE r.id = s.run_id)
    ORDER BY s.ready_at LIMIT 1) w
JOIN holdfast.queues q ON q.id = w.queue AND q.limits = '[]' AND q.rates = '[]'
WHERE {passable(l)}
ORDER BY 3 LIMIT $2

-- The run of each workflow, version and priority that waits longest for a scheduler, if longer than $1 seconds. A run
-- that has begun before does not count: it waits only since it was released or freed.
-- name: late_runs
WITH RECURSIVE kinds(workflow, version) AS (
    (SELECT workflow, version FROM holdfast.runs WHERE state = 'pending' AND queue = 0 ORDER BY workflow, version LIMIT 1)
    UNION ALL
    SELECT n.workflow, n.version FROM kinds k CROSS JOIN LATERAL (
        SELECT r.workflow, r.version FROM holdfast.runs r
        WHERE r.state = 'pending' AND r.queue = 0 AND (r.workflow, r.version) > (k.workflow, k.version)
        ORDER BY r.workflow, r.version LIMIT 1) n),
places(workflow, version, priority) AS (
    SELECT k.workflow, k.version, (SELECT r.priority FROM holdfast.runs r WHERE r.state = 'pending' AND r.queue = 0
        AND r.workflow = k.workflow AND r.version = k.version ORDER BY r.priority DESC LIMIT 1)
    FROM kinds k
    UNION ALL
    SELECT p.workflow, p.version, (SELECT r.priority FROM holdfast.runs r WHERE r.state = 'pending' AND r.queue = 0
        AND r.workflow = p.workflow AND r.version = p.version AND r.priority < p.priority
        ORDER BY r.priority DESC LIMIT 1)
    FROM places p WHERE p.priority IS NOT NULL)
SELECT p.workflow || '@' || p.version, w.id, w.since FROM places p
CROSS JOIN LATERAL (
    SELECT id, coalesce(begin_at, created_at) AS since FROM holdfast.runs
    WHERE state = 'pending' AND workflow = p.workflow AND version = p.version AND priority = p.priority AND queue = 0
      AND created_at < (SELECT clock_timestamp() - make_interval(secs => $1)) AND started_at IS NULL
      AND (begin_at IS NULL OR begin_at < (SELECT clock_timestamp() - make_interval(secs => $1)))
    ORDER BY created_at LIMIT 1) w
WHERE p.priority IS NOT NULL ORDER BY w.since LIMIT $2

-- For each workflow and version, the begun run without an owner that waits longest for a scheduler to deliver something
-- to it, if longer than $1 seconds. That may be an outcome, a signal or a due timer. At most $2 rows of each are read.
-- name: late_wakes
SELECT what, run_id, since FROM (
    SELECT DISTINCT ON (r.workflow, r.version) r.workflow || '@' || r.version AS what, w.run_id, w.since FROM (
        (SELECT run_id, finished_at AS since FROM holdfast.steps
         WHERE delivered_seq IS NULL AND state IN ('succeeded', 'failed', 'cancelled')
           AND finished_at < clock_timestamp() - make_interval(secs => $1) LIMIT $2)
        UNION ALL
        (SELECT run_id, sent_at FROM holdfast.signals
         WHERE delivered_seq IS NULL AND sent_at < clock_timestamp() - make_interval(secs => $1) LIMIT $2)
        UNION ALL
        (SELECT run_id, ready_at FROM holdfast.steps WHERE state = 'waiting' AND kind = 'timer'
           AND ready_at < (SELECT clock_timestamp() - make_interval(secs => $1)) ORDER BY ready_at LIMIT $2)) w
    JOIN holdfast.runs r ON r.id = w.run_id AND r.owner IS NULL AND r.state IN ('running', 'undoing')
    ORDER BY r.workflow, r.version, w.since) oldest
ORDER BY since LIMIT $3

-- name: any_promised
SELECT 1 WHERE EXISTS (SELECT FROM holdfast.runs WHERE due_at IS NOT NULL AND finished_at IS NULL)
            OR EXISTS (SELECT FROM holdfast.steps WHERE due_at IS NOT NULL AND finished_at IS NULL)

-- Open runs that were promised to end at some time, those that are due first.
-- name: promised_runs
SELECT id, workflow, state, generation, base_n, created_at, started_at, begin_at, due_at FROM holdfast.runs
WHERE due_at IS NOT NULL AND finished_at IS NULL AND (due_at, id) > ($1::timestamptz, $2::text) ORDER BY due_at, id LIMIT $3

-- OFFSET 0 makes the planner look up each row by its key, whatever its estimates say.
-- name: promised_runs_of
SELECT r.id, r.workflow, r.state, r.generation, r.base_n, r.created_at, r.started_at, r.begin_at, r.due_at
FROM unnest($1::text[]) u(id)
CROSS JOIN LATERAL (
    SELECT id, workflow, state, generation, base_n, created_at, started_at, begin_at, due_at, finished_at FROM holdfast.runs
    WHERE id = u.id OFFSET 0) r
WHERE r.due_at IS NOT NULL AND r.finished_at IS NULL

-- name: promised_steps
SELECT run_id, n, key, name, state, issued_at, started_at, due_at FROM holdfast.steps
WHERE due_at IS NOT NULL AND finished_at IS NULL AND (due_at, run_id, n) > ($1::timestamptz, $2::text, $3::int)
ORDER BY due_at, run_id, n LIMIT $4

-- name: promised_steps_of
SELECT s.run_id, s.n, s.key, s.name, s.state, s.issued_at, s.started_at, s.due_at FROM unnest($1::text[], $2::int[]) u(run_id, n)
CROSS JOIN LATERAL (
    SELECT run_id, n, key, name, state, issued_at, started_at, due_at, finished_at FROM holdfast.steps
    WHERE run_id = u.run_id AND n = u.n OFFSET 0) s
WHERE s.due_at IS NOT NULL AND s.finished_at IS NULL

-- What has ended meanwhile is not late any more. Without n it is the run that is late.
-- name: raise_late
INSERT INTO holdfast.alerts (kind, level, key, run_id, message, last_at)
SELECT u.kind, u.level, u.key, r.id, u.message, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[]) u(kind, level, key, run_id, n, message)
JOIN holdfast.runs r ON r.id = u.run_id AND r.finished_at IS NULL
LEFT JOIN holdfast.steps s ON s.run_id = u.run_id AND s.n = u.n AND s.finished_at IS NULL
WHERE CASE WHEN u.n IS NULL THEN r.due_at ELSE s.due_at END IS NOT NULL
ON CONFLICT (key) WHERE cleared_at IS NULL DO NOTHING
