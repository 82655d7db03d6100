-- Alerts and their outbox. The leader raises, logs and clears alerts. The holder of the lease `alerts` routes and sends
-- them.

-- name: alert_stuck_runs
INSERT INTO alerts (at, kind, run_id, message, key, last_at)
VALUES (store_now(), 'run stuck', ?1, ?2, 'run stuck:' || ?1, store_now())
ON CONFLICT (key) WHERE cleared_at IS NULL DO UPDATE SET times = times + 1, last_at = excluded.last_at

-- n is a step. 0 is the run itself. A negative n is a signal that was set aside, with the place -n in the history.
-- name: note_failures
INSERT INTO failures (run_id, n) VALUES (?1, ?2)

-- name: failures
SELECT f.id, f.run_id, f.n, r.workflow, r.state, r.parent_id,
       CASE WHEN f.n = 0 AND r.state = 'held' THEN r.note WHEN f.n = 0 THEN r.error WHEN f.n < 0 THEN g.set_aside
            ELSE s.error END,
       s.key, coalesce(s.name, g.name), s.kind, coalesce(s.attempt, 0), coalesce(s.losses, 0), coalesce(s.excused, 0),
       coalesce(s.attempts_max, 1), coalesce(s.timeouts, 0), coalesce(s.throttled, 0),
       CASE WHEN {quarantined(s)} THEN q.fingerprint END
FROM failures f
LEFT JOIN runs r ON r.id = f.run_id
LEFT JOIN steps s ON s.run_id = f.run_id AND s.n = f.n
LEFT JOIN quarantine q ON q.run_id = f.run_id AND q.n = f.n
LEFT JOIN signals g ON f.n < 0 AND g.run_id = f.run_id AND g.delivered_seq = -f.n
ORDER BY f.id LIMIT ?1

-- name: forget_failures
DELETE FROM failures WHERE id = ?1

-- name: raise_alerts
INSERT INTO alerts (at, kind, level, key, run_id, message, times, about, last_at)
VALUES (store_now(), ?1, ?2, ?3, ?4, ?5, ?6, ?7, store_now())
ON CONFLICT (key) WHERE cleared_at IS NULL
DO UPDATE SET times = times + excluded.times, last_at = excluded.last_at

-- name: clear_alerts
UPDATE alerts SET cleared_at = store_now() WHERE id = ?1 AND cleared_at IS NULL RETURNING run_id

-- name: clear_stuck
UPDATE alerts SET cleared_at = store_now() WHERE key = 'run stuck:' || ?1 AND cleared_at IS NULL

-- name: unlogged_alerts
SELECT {Alert} FROM alerts INDEXED BY alerts_unlogged WHERE logged = 0 ORDER BY id LIMIT ?1

-- name: log_alerts
UPDATE alerts SET logged = 1 WHERE id = ?1

-- name: alerts
SELECT {Alert} FROM alerts ORDER BY id DESC LIMIT ?1

-- name: open_alerts
SELECT {Alert} FROM alerts INDEXED BY alerts_open WHERE cleared_at IS NULL ORDER BY id DESC LIMIT ?1

-- name: alerts_in
SELECT {Alert} FROM alerts INDEXED BY alerts_in WHERE namespace = ?2 ORDER BY id DESC LIMIT ?1

-- name: open_alerts_in
SELECT {Alert} FROM alerts INDEXED BY alerts_open_in WHERE cleared_at IS NULL AND namespace = ?2 ORDER BY id DESC LIMIT ?1

-- name: alert_in
SELECT 1 FROM alerts WHERE id = ?1 AND namespace = ?2

-- name: open_kinds
SELECT k.value FROM json_each(?1) k
WHERE EXISTS (SELECT 1 FROM alerts INDEXED BY alerts_open_by_kind WHERE cleared_at IS NULL AND kind = k.value)

-- name: open_alerts_of
SELECT {Alert} FROM alerts INDEXED BY alerts_open_by_kind WHERE cleared_at IS NULL AND kind = ?1 AND id > ?2 ORDER BY id LIMIT ?3

-- name: deliveries
SELECT {Delivery} FROM deliveries WHERE alert_id IN (SELECT value FROM json_each(?1)) ORDER BY id

-- name: unrouted_alerts
SELECT routed, {Alert} FROM alerts INDEXED BY alerts_unrouted
WHERE routed = 0 OR (routed = 1 AND cleared_at IS NOT NULL) ORDER BY id LIMIT ?1

-- name: route_alerts
UPDATE alerts SET routed = ?2 WHERE id = ?1 AND routed < ?2

-- name: add_deliveries
INSERT INTO deliveries (id, alert_id, channel, event, next_try_at) VALUES (?1, ?2, ?3, ?4, store_now())
ON CONFLICT (alert_id, event, channel) DO NOTHING

-- name: due_deliveries
SELECT d.id, d.event, d.attempts + 1, {Alert(a)}
FROM deliveries d INDEXED BY deliveries_due CROSS JOIN alerts a ON a.id = d.alert_id
WHERE d.channel = ?1 AND d.sent_at IS NULL AND d.given_up_at IS NULL AND d.next_try_at <= (SELECT store_now())
ORDER BY d.next_try_at LIMIT ?2

-- A claim counts as an attempt. If nobody ends the delivery in time, it is due again.
-- name: claim_deliveries
UPDATE deliveries SET attempts = attempts + 1, next_try_at = store_now() + ?2 WHERE id = ?1

-- name: end_delivery
UPDATE deliveries SET last_error = ?3, sent_at = CASE WHEN ?3 IS NULL THEN store_now() END,
                      given_up_at = CASE WHEN ?3 IS NOT NULL AND ?4 IS NULL THEN store_now() END,
                      next_try_at = store_now() + coalesce(?4, 0)
WHERE id = ?1 AND attempts = ?2 AND sent_at IS NULL
RETURNING alert_id, sent_at

-- name: note_sent
UPDATE alerts SET sent_at = coalesce(sent_at, ?2) WHERE id = ?1

-- Gives up deliveries whose channel no longer exists: they have been due for more than ?1 seconds.
-- name: expire_deliveries
UPDATE deliveries SET given_up_at = store_now(), last_error = coalesce(last_error, 'nobody sent it')
WHERE sent_at IS NULL AND given_up_at IS NULL AND next_try_at < (SELECT store_now() - ?1)

-- The step of each lane and priority that waits longest for an agent, if longer than ?1 seconds. Each costs one look
-- into the index. Of what has a queue, the longest waiting step of each lane counts, unless it is under a limit: then it may
-- wait for that. Steps behind a gate do not wait for an agent.
-- name: late_steps
WITH RECURSIVE places (lane, name, priority) AS (
    SELECT l.id, l.name, {top_priority(l.id)} FROM lanes l WHERE {passable(l)}
    UNION ALL
    SELECT p.lane, p.name, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL)
SELECT p.name, w.run_id, w.ready_at FROM places p CROSS JOIN steps w ON w.rowid = (
    SELECT s.rowid FROM steps s INDEXED BY steps_ready CROSS JOIN runs r ON r.id = s.run_id
    WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority = p.priority AND s.queue = 0 AND s.ready_at < (SELECT store_now() - ?1)
      AND {goes_on(r)}
    ORDER BY s.ready_at LIMIT 1)
WHERE p.priority IS NOT NULL
UNION ALL
SELECT l.name, w.run_id, w.ready_at FROM lanes l CROSS JOIN steps w ON w.rowid = (
    SELECT s.rowid FROM steps s INDEXED BY steps_queued CROSS JOIN runs r ON r.id = s.run_id
    WHERE s.state = 'ready' AND s.queue > 0 AND s.lane = l.id AND s.ready_at < (SELECT store_now() - ?1) AND {goes_on(r)}
    ORDER BY s.ready_at LIMIT 1)
CROSS JOIN queues q ON q.id = w.queue
WHERE {passable(l)} AND q.limits = '[]' AND q.rates = '[]'
ORDER BY 3 LIMIT ?2

-- The run of each workflow, version and priority that waits longest for a scheduler, if longer than ?1 seconds. A run
-- that has begun before does not count: it waits only since it was released or freed.
-- name: late_runs
WITH RECURSIVE kinds (workflow, version) AS (
    SELECT workflow, version FROM (SELECT workflow, version FROM runs INDEXED BY runs_pending WHERE state = 'pending' AND queue = 0
                   ORDER BY workflow, version LIMIT 1)
    UNION ALL
    SELECT r.workflow, r.version FROM kinds k CROSS JOIN runs r ON r.rowid = coalesce(
        (SELECT n.rowid FROM runs n INDEXED BY runs_pending
         WHERE n.state = 'pending' AND n.queue = 0 AND n.workflow = k.workflow AND n.version > k.version ORDER BY n.version LIMIT 1),
        (SELECT n.rowid FROM runs n INDEXED BY runs_pending
         WHERE n.state = 'pending' AND n.queue = 0 AND n.workflow > k.workflow ORDER BY n.workflow, n.version LIMIT 1))),
places (workflow, version, priority) AS (
    SELECT k.workflow, k.version, (SELECT r.priority FROM runs r INDEXED BY runs_pending WHERE r.state = 'pending' AND r.queue = 0
        AND r.workflow = k.workflow AND r.version = k.version ORDER BY r.priority DESC LIMIT 1)
    FROM kinds k
    UNION ALL
    SELECT p.workflow, p.version, (SELECT r.priority FROM runs r INDEXED BY runs_pending WHERE r.state = 'pending' AND r.queue = 0
        AND r.workflow = p.workflow AND r.version = p.version AND r.priority < p.priority
        ORDER BY r.priority DESC LIMIT 1)
    FROM places p WHERE p.priority IS NOT NULL)
SELECT p.workflow || '@' || p.version, w.id, coalesce(w.begin_at, w.created_at) FROM places p CROSS JOIN runs w ON w.rowid = (
    SELECT r.rowid FROM runs r INDEXED BY runs_pending
    WHERE r.state = 'pending' AND r.workflow = p.workflow AND r.version = p.version AND r.priority = p.priority AND r.queue = 0
      AND r.created_at < (SELECT store_now() - ?1) AND r.started_at IS NULL
      AND (r.begin_at IS NULL OR r.begin_at < (SELECT store_now() - ?1))
    ORDER BY r.created_at LIMIT 1)
WHERE p.priority IS NOT NULL ORDER BY coalesce(w.begin_at, w.created_at) LIMIT ?2

-- For each workflow and version, the begun run without an owner that waits longest for a scheduler to deliver something
-- to it, if longer than ?1 seconds. That may be an outcome, a signal or a due timer. At most ?2 rows of each are read.
-- name: late_wakes
SELECT r.workflow || '@' || r.version, w.run_id, min(w.since) FROM (
    SELECT run_id, since FROM (SELECT run_id, finished_at AS since FROM steps INDEXED BY steps_undelivered
                   WHERE delivered_seq IS NULL AND finished_at IS NOT NULL AND finished_at < (SELECT store_now() - ?1) LIMIT ?2)
    UNION ALL
    SELECT run_id, sent_at FROM (SELECT run_id, sent_at FROM signals INDEXED BY signals_undelivered
                   WHERE delivered_seq IS NULL AND sent_at < (SELECT store_now() - ?1) LIMIT ?2)
    UNION ALL
    SELECT run_id, ready_at FROM (SELECT run_id, ready_at FROM steps INDEXED BY steps_timers
                   WHERE state = 'waiting' AND kind = 'timer' AND ready_at < (SELECT store_now() - ?1) ORDER BY ready_at LIMIT ?2)) w
CROSS JOIN runs r ON r.id = w.run_id
WHERE +r.owner IS NULL AND {active(r)}
GROUP BY r.workflow, r.version ORDER BY min(w.since) LIMIT ?3

-- name: any_promised
SELECT 1 WHERE EXISTS (SELECT 1 FROM runs INDEXED BY runs_due WHERE due_at IS NOT NULL AND finished_at IS NULL)
            OR EXISTS (SELECT 1 FROM steps INDEXED BY steps_due WHERE due_at IS NOT NULL AND finished_at IS NULL)

-- Open runs that were promised to end at some time, those that are due first.
-- name: promised_runs
SELECT id, workflow, state, generation, base_n, created_at, started_at, begin_at, due_at FROM runs INDEXED BY runs_due
WHERE due_at IS NOT NULL AND finished_at IS NULL AND (due_at, id) > (?1, ?2) ORDER BY due_at, id LIMIT ?3

-- name: promised_runs_of
SELECT id, workflow, state, generation, base_n, created_at, started_at, begin_at, due_at FROM runs
WHERE id IN (SELECT value FROM json_each(?1)) AND due_at IS NOT NULL AND finished_at IS NULL

-- name: promised_steps
SELECT run_id, n, key, name, state, issued_at, started_at, due_at FROM steps INDEXED BY steps_due
WHERE due_at IS NOT NULL AND finished_at IS NULL AND (due_at, run_id, n) > (?1, ?2, ?3) ORDER BY due_at, run_id, n LIMIT ?4

-- name: promised_steps_of
SELECT s.run_id, s.n, s.key, s.name, s.state, s.issued_at, s.started_at, s.due_at FROM json_each(?1) a JOIN json_each(?2) b ON b.key = a.key
CROSS JOIN steps s ON s.run_id = a.value AND s.n = b.value AND s.due_at IS NOT NULL AND s.finished_at IS NULL

-- What has ended meanwhile is not late any more. Without n it is the run that is late.
-- name: raise_late
INSERT INTO alerts (at, kind, level, key, run_id, message, last_at)
SELECT store_now(), ?1, ?2, ?3, r.id, ?6, store_now()
FROM runs r LEFT JOIN steps s ON s.run_id = r.id AND s.n = ?5 AND s.finished_at IS NULL
WHERE r.id = ?4 AND r.finished_at IS NULL AND iif(?5 IS NULL, r.due_at, s.due_at) IS NOT NULL
ON CONFLICT (key) WHERE cleared_at IS NULL DO NOTHING
