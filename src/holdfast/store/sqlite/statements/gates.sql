-- Breakers and holds. Agents add the outcomes that they saw and claim as many probes as a wave allows. The leader
-- decides about breakers, and operators may overrule it. Every change of a breaker's state raises its round. The leader
-- names the round it knew.

-- name: gate_breakers
SELECT {Breaker} FROM breakers WHERE state <> 'closed' OR forced = 1 OR window_at > (SELECT store_now() - ?1)

-- name: breakers
SELECT {Breaker} FROM breakers ORDER BY name

-- name: holds
SELECT {Hold} FROM holds ORDER BY at, scope, value

-- name: observe
INSERT INTO breakers (name, ok, failed, error, window_at, told_at) VALUES (?1, ?2, ?3, ?4, store_now(), store_now())
ON CONFLICT (name) DO UPDATE SET
    ok = excluded.ok + CASE WHEN window_at > excluded.window_at - ?5 THEN ok ELSE 0 END,
    failed = excluded.failed + CASE WHEN window_at > excluded.window_at - ?5 THEN failed ELSE 0 END,
    window_at = CASE WHEN window_at > excluded.window_at - ?5 THEN window_at ELSE excluded.window_at END,
    told_at = excluded.told_at, error = coalesce(excluded.error, error)
WHERE state = 'closed' AND forced = 0

-- name: observe_probes
UPDATE breakers SET ok = ok + ?3, failed = failed + ?4, error = coalesce(?5, error), told_at = store_now()
WHERE name = ?1 AND round = ?2 AND state = 'probing'

-- name: probing
SELECT round, allowance FROM breakers WHERE name = ?1 AND state = 'probing' AND allowance > 0
  AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'all')
  AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'dependency' AND value = ?1)

-- name: take_allowance
UPDATE breakers SET allowance = allowance - ?2, told_at = store_now() WHERE name = ?1

-- Breakers that no operator has forced, and that are not closed or have had trouble lately. For a probing one: how many
-- of its steps run that started since its window began, and whether any step waits for it. This looks into the index
-- once per lane and priority, and reads the running steps.
-- name: breaker_looks
WITH RECURSIVE
watched AS (
    SELECT {Breaker} FROM breakers WHERE forced = 0 AND (state <> 'closed' OR window_at > (SELECT store_now() - ?1))),
places (name, lane, priority) AS (
    SELECT b.name, l.id, {top_priority(l.id)}
    FROM watched b CROSS JOIN lanes l INDEXED BY lanes_depends ON l.depends = b.name WHERE b.state = 'probing'
    UNION ALL
    SELECT p.name, p.lane, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL),
waits AS (
    SELECT p.name FROM places p WHERE p.priority IS NOT NULL AND EXISTS (
        SELECT 1 FROM steps s INDEXED BY steps_ready
        WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority = p.priority AND s.queue = 0 AND s.ready_at <= (SELECT store_now()))
    UNION ALL
    SELECT p.name FROM places p WHERE EXISTS (
        SELECT 1 FROM steps s INDEXED BY steps_queued
        WHERE s.state = 'ready' AND s.queue > 0 AND s.lane = p.lane AND s.ready_at <= (SELECT store_now()))),
flights AS (
    SELECT l.depends AS name, s.started_at
    FROM steps s INDEXED BY steps_held CROSS JOIN lanes l ON l.id = s.lane
    WHERE s.state = 'running' AND EXISTS (SELECT 1 FROM watched b WHERE b.state = 'probing'))
SELECT {Breaker(b)}, (SELECT count(*) FROM flights f WHERE f.name = b.name AND f.started_at >= b.window_at),
       EXISTS (SELECT 1 FROM waits w WHERE w.name = b.name)
FROM watched b ORDER BY b.name

-- name: change_breaker
UPDATE breakers SET state = ?3, round = round + 1, ok = 0, failed = 0, wave = ?4, allowance = ?4, window_at = store_now(),
    told_at = store_now(), open_s = ?5, note = ?6, actor = 'supervisor',
    opened_at = CASE WHEN ?3 = 'closed' THEN NULL ELSE coalesce(opened_at, store_now()) END,
    open_until = CASE WHEN ?3 = 'open' THEN store_now() + ?5 END,
    trips = CASE ?3 WHEN 'closed' THEN 0 WHEN 'open' THEN trips + 1 ELSE trips END
WHERE name = ?1 AND round = ?2 AND forced = 0

-- name: give_back_probes
UPDATE breakers SET allowance = min(wave, allowance + ?3), told_at = store_now()
WHERE name = ?1 AND round = ?2 AND state = 'probing' AND forced = 0

-- name: force_breaker
INSERT INTO breakers (name, state, round, opened_at, forced, actor, note, window_at, told_at)
VALUES (?1, ?2, 1, CASE WHEN ?2 = 'open' THEN store_now() END, 1, ?3, ?4, store_now(), store_now())
ON CONFLICT (name) DO UPDATE SET state = ?2, round = round + 1, ok = 0, failed = 0, wave = 0, allowance = 0,
    window_at = excluded.window_at, told_at = excluded.told_at, open_s = 0, trips = 0, forced = 1, actor = ?3, note = ?4,
    error = NULL, open_until = NULL, opened_at = CASE WHEN ?2 = 'open' THEN coalesce(opened_at, excluded.opened_at) END
RETURNING {Breaker}

-- A breaker that is not closed begins to probe, with one step.
-- name: reset_breaker
UPDATE breakers SET state = CASE state WHEN 'closed' THEN 'closed' ELSE 'probing' END, round = round + 1, ok = 0,
    failed = 0, wave = CASE state WHEN 'closed' THEN 0 ELSE 1 END, allowance = CASE state WHEN 'closed' THEN 0 ELSE 1 END,
    told_at = store_now(), window_at = CASE state WHEN 'closed' THEN 0.0 ELSE store_now() END, open_s = 0, open_until = NULL,
    forced = 0, actor = ?2, note = ?3
WHERE name = ?1
RETURNING {Breaker}

-- name: add_hold
INSERT INTO holds (scope, value, actor, note, at) VALUES (?1, ?2, ?3, ?4, store_now())
ON CONFLICT (scope, value) DO NOTHING

-- name: remove_hold
DELETE FROM holds WHERE scope = ?1 AND value = ?2
