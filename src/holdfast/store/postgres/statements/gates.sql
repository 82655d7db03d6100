-- Breakers and holds. Agents add the outcomes that they saw and claim as many probes as a wave allows. The leader
-- decides about breakers, and operators may overrule it. Every change of a breaker's state raises its round. The leader
-- names the round it knew.

-- name: gate_breakers
SELECT {Breaker} FROM holdfast.breakers
WHERE state <> 'closed' OR forced OR window_at > clock_timestamp() - make_interval(secs => $1)

-- name: breakers
SELECT {Breaker} FROM holdfast.breakers ORDER BY name

-- name: holds
SELECT {Hold} FROM holdfast.holds ORDER BY at, scope, value

-- name: observe
INSERT INTO holdfast.breakers (name, ok, failed, error)
SELECT u.name, u.ok, u.failed, u.error
FROM unnest($1::text[], $2::int[], $3::int[], $4::text[]) u(name, ok, failed, error) ORDER BY u.name
ON CONFLICT (name) DO UPDATE SET
    ok = excluded.ok + CASE WHEN breakers.window_at > excluded.window_at - make_interval(secs => $5) THEN breakers.ok ELSE 0 END,
    failed = excluded.failed
        + CASE WHEN breakers.window_at > excluded.window_at - make_interval(secs => $5) THEN breakers.failed ELSE 0 END,
    window_at = CASE WHEN breakers.window_at > excluded.window_at - make_interval(secs => $5)
                THEN breakers.window_at ELSE excluded.window_at END,
    told_at = excluded.told_at,
    error = coalesce(excluded.error, breakers.error)
WHERE breakers.state = 'closed' AND NOT breakers.forced

-- name: observe_probes
UPDATE holdfast.breakers b SET ok = b.ok + u.ok, failed = b.failed + u.failed, error = coalesce(u.error, b.error),
                      told_at = clock_timestamp()
FROM unnest($1::text[], $2::int[], $3::int[], $4::int[], $5::text[]) u(name, round, ok, failed, error)
WHERE b.name = u.name AND b.round = u.round AND b.state = 'probing'

-- The row is locked until the commit, so that nobody else uses the allowance meanwhile.
-- name: probing
SELECT round, allowance FROM holdfast.breakers
WHERE name = $1 AND state = 'probing' AND allowance > 0
  AND NOT EXISTS (SELECT FROM holdfast.holds WHERE scope = 'all' OR (scope = 'dependency' AND value = $1))
FOR UPDATE

-- name: take_allowance
UPDATE holdfast.breakers SET allowance = allowance - $2, told_at = clock_timestamp() WHERE name = $1

-- Breakers that no operator has forced, and that are not closed or have had trouble lately. For a probing one: how many
-- of its steps run that started since its window began, and whether any step waits for it. This looks into the index
-- once per lane and priority, and reads the running steps.
-- name: breaker_looks
WITH RECURSIVE watched AS (
    SELECT {Breaker} FROM holdfast.breakers
    WHERE NOT forced AND (state <> 'closed' OR window_at > clock_timestamp() - make_interval(secs => $1))),
places(name, lane, priority) AS (
    SELECT b.name, l.id, {top_priority(l.id)}
    FROM watched b JOIN holdfast.lanes l ON l.depends = b.name WHERE b.state = 'probing'
    UNION ALL
    SELECT p.name, p.lane, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL),
waits AS (
    SELECT p.name FROM places p WHERE p.priority IS NOT NULL AND (
        SELECT true FROM holdfast.steps s WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority = p.priority
          AND s.queue = 0 AND s.ready_at <= clock_timestamp() ORDER BY s.ready_at LIMIT 1)
    UNION ALL
    SELECT p.name FROM places p WHERE (
        SELECT true FROM holdfast.steps s WHERE s.state = 'ready' AND s.queue > 0 AND s.lane = p.lane
          AND s.ready_at <= clock_timestamp() ORDER BY s.ready_at LIMIT 1)),
flights AS (
    SELECT b.name, count(*) AS steps FROM watched b JOIN holdfast.lanes l ON l.depends = b.name
    JOIN holdfast.steps s ON s.state = 'running' AND s.lane = l.id AND s.started_at >= b.window_at
    WHERE b.state = 'probing' GROUP BY b.name)
SELECT {Breaker(b)}, coalesce((SELECT f.steps FROM flights f WHERE f.name = b.name), 0)::int,
       EXISTS (SELECT FROM waits w WHERE w.name = b.name)
FROM watched b ORDER BY b.name

-- name: change_breaker
UPDATE holdfast.breakers SET state = $3::text, round = round + 1, ok = 0, failed = 0, wave = $4, allowance = $4,
    window_at = clock_timestamp(), told_at = clock_timestamp(), open_s = $5::float8, note = $6, actor = 'supervisor',
    opened_at = CASE WHEN $3::text = 'closed' THEN NULL ELSE coalesce(opened_at, clock_timestamp()) END,
    open_until = CASE WHEN $3::text = 'open' THEN clock_timestamp() + make_interval(secs => $5::float8) END,
    trips = CASE $3::text WHEN 'closed' THEN 0 WHEN 'open' THEN trips + 1 ELSE trips END
WHERE name = $1 AND round = $2 AND NOT forced

-- name: give_back_probes
UPDATE holdfast.breakers SET allowance = least(wave, allowance + $3), told_at = clock_timestamp()
WHERE name = $1 AND round = $2 AND state = 'probing' AND NOT forced

-- name: force_breaker
INSERT INTO holdfast.breakers (name, state, round, opened_at, forced, actor, note)
VALUES ($1, $2::text, 1, CASE WHEN $2::text = 'open' THEN clock_timestamp() END, true, $3, $4)
ON CONFLICT (name) DO UPDATE SET state = $2::text, round = breakers.round + 1, ok = 0, failed = 0, wave = 0, allowance = 0,
    window_at = clock_timestamp(), told_at = clock_timestamp(), open_s = 0, trips = 0, forced = true, actor = $3, note = $4,
    error = NULL, open_until = NULL,
    opened_at = CASE WHEN $2::text = 'open' THEN coalesce(breakers.opened_at, clock_timestamp()) END
RETURNING {Breaker}

-- A breaker that is not closed begins to probe, with one step.
-- name: reset_breaker
UPDATE holdfast.breakers SET state = CASE state WHEN 'closed' THEN 'closed' ELSE 'probing' END, round = round + 1,
    ok = 0, failed = 0, wave = CASE state WHEN 'closed' THEN 0 ELSE 1 END,
    allowance = CASE state WHEN 'closed' THEN 0 ELSE 1 END, told_at = clock_timestamp(),
    window_at = CASE state WHEN 'closed' THEN 'epoch'::timestamptz ELSE clock_timestamp() END,
    open_s = 0, open_until = NULL, forced = false, actor = $2, note = $3
WHERE name = $1
RETURNING {Breaker}

-- name: add_hold
INSERT INTO holdfast.holds (scope, value, actor, note) VALUES ($1, $2, $3, $4)
ON CONFLICT (scope, value) DO NOTHING

-- name: remove_hold
DELETE FROM holdfast.holds WHERE scope = $1 AND value = $2
