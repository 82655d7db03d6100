-- Breakers and holds. Agents tell what they saw and take what a wave allows; the leader decides, in a transaction that found its
-- epoch current; operators force. Who changes a breaker's state raises its round, and names the one it knew.

-- name: gate_breakers
SELECT name, state, round, ok, failed, window_at, told_at, wave, allowance, opened_at, open_until, open_s, trips, forced,
       actor, note, error
FROM breakers WHERE state <> 'closed' OR forced = 1 OR window_at > ?

-- name: breakers
SELECT name, state, round, ok, failed, window_at, told_at, wave, allowance, opened_at, open_until, open_s, trips, forced,
       actor, note, error
FROM breakers ORDER BY name

-- name: holds
SELECT scope, value, actor, note, at FROM holds ORDER BY at, scope, value

-- The lanes from which nothing may be claimed; -1: from none.
-- name: shut_lanes
SELECT id FROM lanes WHERE depends IN (SELECT name FROM breakers WHERE state <> 'closed')
UNION SELECT id FROM lanes WHERE depends IN (SELECT value FROM holds WHERE scope = 'dependency')
UNION SELECT id FROM lanes WHERE name IN (SELECT value FROM holds WHERE scope = 'step')
UNION SELECT -1 FROM holds WHERE scope = 'all'

-- name: observe
INSERT INTO breakers (name, ok, failed, error, window_at, told_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)
ON CONFLICT (name) DO UPDATE SET
    ok = ?2 + CASE WHEN window_at > ?6 THEN ok ELSE 0 END,
    failed = ?3 + CASE WHEN window_at > ?6 THEN failed ELSE 0 END,
    window_at = CASE WHEN window_at > ?6 THEN window_at ELSE ?5 END,
    told_at = ?5, error = coalesce(?4, error)
WHERE state = 'closed' AND forced = 0

-- name: observe_probes
UPDATE breakers SET ok = ok + ?3, failed = failed + ?4, error = coalesce(?5, error), told_at = ?6
WHERE name = ?1 AND round = ?2 AND state = 'probing'

-- name: probing
SELECT round, allowance FROM breakers WHERE name = ?1 AND state = 'probing' AND allowance > 0
  AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'all')
  AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'dependency' AND value = ?1)

-- Of these lanes, as a JSON array, those with probes of this breaker.
-- name: probe_lanes
SELECT id FROM lanes WHERE depends = ?1 AND id IN (SELECT value FROM json_each(?2))
  AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'step' AND value = lanes.name)

-- name: take_allowance
UPDATE breakers SET allowance = allowance - ?2, told_at = ?3 WHERE name = ?1

-- What each breaker that is not closed, or in recent trouble, has in flight since its round began, and whether anything waits for
-- it: one index look per lane and priority, and the steps that run.
-- name: breaker_looks
WITH RECURSIVE
watched AS (SELECT * FROM breakers WHERE forced = 0 AND (state <> 'closed' OR window_at > ?1)),
places (name, lane, priority) AS (
    SELECT b.name, l.id, (SELECT s.priority FROM steps s INDEXED BY steps_ready
                          WHERE s.state = 'ready' AND s.lane = l.id ORDER BY s.priority DESC LIMIT 1)
    FROM watched b CROSS JOIN lanes l INDEXED BY lanes_depends ON l.depends = b.name WHERE b.state = 'probing'
    UNION ALL
    SELECT p.name, p.lane, (SELECT s.priority FROM steps s INDEXED BY steps_ready
                            WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority < p.priority
                            ORDER BY s.priority DESC LIMIT 1)
    FROM places p WHERE p.priority IS NOT NULL),
waits AS (
    SELECT p.name FROM places p WHERE p.priority IS NOT NULL AND EXISTS (
        SELECT 1 FROM steps s INDEXED BY steps_ready
        WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority = p.priority AND s.ready_at <= ?2)),
flights AS (
    SELECT l.depends AS name, s.started_at
    FROM steps s INDEXED BY steps_held CROSS JOIN lanes l ON l.id = s.lane
    WHERE s.state = 'running' AND EXISTS (SELECT 1 FROM watched b WHERE b.state = 'probing'))
SELECT b.name, b.state, b.round, b.ok, b.failed, b.window_at, b.told_at, b.wave, b.allowance, b.opened_at, b.open_until,
       b.open_s, b.trips, b.forced, b.actor, b.note, b.error,
       (SELECT count(*) FROM flights f WHERE f.name = b.name AND f.started_at >= b.window_at),
       EXISTS (SELECT 1 FROM waits w WHERE w.name = b.name)
FROM watched b ORDER BY b.name

-- name: change_breaker
UPDATE breakers SET state = ?3, round = round + 1, ok = 0, failed = 0, wave = ?4, allowance = ?4, window_at = ?7,
    told_at = ?7, open_s = ?5, note = ?6, actor = 'supervisor',
    opened_at = CASE WHEN ?3 = 'closed' THEN NULL ELSE coalesce(opened_at, ?7) END,
    open_until = CASE WHEN ?3 = 'open' THEN ?7 + ?5 END,
    trips = CASE ?3 WHEN 'closed' THEN 0 WHEN 'open' THEN trips + 1 ELSE trips END
WHERE name = ?1 AND round = ?2 AND forced = 0
RETURNING 1

-- name: give_back_probes
UPDATE breakers SET allowance = min(wave, allowance + ?3), told_at = ?4
WHERE name = ?1 AND round = ?2 AND state = 'probing' AND forced = 0
RETURNING 1

-- name: force_breaker
INSERT INTO breakers (name, state, round, opened_at, forced, actor, note, window_at, told_at)
VALUES (?1, ?2, 1, CASE WHEN ?2 = 'open' THEN ?5 END, 1, ?3, ?4, ?5, ?5)
ON CONFLICT (name) DO UPDATE SET state = ?2, round = round + 1, ok = 0, failed = 0, wave = 0, allowance = 0,
    window_at = ?5, told_at = ?5, open_s = 0, trips = 0, forced = 1, actor = ?3, note = ?4, error = NULL,
    open_until = NULL, opened_at = CASE WHEN ?2 = 'open' THEN coalesce(opened_at, ?5) END
RETURNING name, state, round, ok, failed, window_at, told_at, wave, allowance, opened_at, open_until, open_s, trips, forced,
          actor, note, error

-- What is not closed is tried before it is trusted.
-- name: reset_breaker
UPDATE breakers SET state = CASE state WHEN 'closed' THEN 'closed' ELSE 'probing' END, round = round + 1, ok = 0,
    failed = 0, wave = CASE state WHEN 'closed' THEN 0 ELSE 1 END, allowance = CASE state WHEN 'closed' THEN 0 ELSE 1 END,
    told_at = ?4, window_at = CASE state WHEN 'closed' THEN 0.0 ELSE ?4 END, open_s = 0, open_until = NULL, forced = 0,
    actor = ?2, note = ?3
WHERE name = ?1
RETURNING name, state, round, ok, failed, window_at, told_at, wave, allowance, opened_at, open_until, open_s, trips, forced,
          actor, note, error

-- name: add_hold
INSERT INTO holds (scope, value, actor, note, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (scope, value) DO NOTHING RETURNING 1

-- name: remove_hold
DELETE FROM holds WHERE scope = ? AND value = ? RETURNING 1
