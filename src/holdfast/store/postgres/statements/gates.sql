-- Breakers and holds. Agents tell what they saw and take what a wave allows; the leader decides, and its every write checks its
-- epoch in the same statement; operators force. Who changes a breaker's state raises its round, and names the one it knew.

-- name: gate_breakers
SELECT name, state, round, ok, failed, window_at, told_at, wave, allowance, opened_at, open_until, open_s, trips, forced,
       actor, note, error
FROM holdfast.breakers
WHERE state <> 'closed' OR forced OR window_at > clock_timestamp() - make_interval(secs => $1)

-- name: breakers
SELECT name, state, round, ok, failed, window_at, told_at, wave, allowance, opened_at, open_until, open_s, trips, forced,
       actor, note, error
FROM holdfast.breakers ORDER BY name

-- name: holds
SELECT scope, value, actor, note, at FROM holdfast.holds ORDER BY at, scope, value

-- name: observe
INSERT INTO holdfast.breakers (name, ok, failed, error) VALUES ($1, $2, $3, $4)
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
UPDATE holdfast.breakers SET ok = ok + $3, failed = failed + $4, error = coalesce($5, error), told_at = clock_timestamp()
WHERE name = $1 AND round = $2 AND state = 'probing'

-- name: probing
SELECT round, allowance FROM holdfast.breakers
WHERE name = $1 AND state = 'probing' AND allowance > 0
  AND NOT EXISTS (SELECT FROM holdfast.holds WHERE scope = 'all' OR (scope = 'dependency' AND value = $1))
FOR UPDATE

-- name: claim_probes
WITH next AS (
    SELECT s.run_id, s.n
    FROM unnest($2::int[]) u(lane) JOIN holdfast.lanes l ON l.id = u.lane AND l.depends = $4
    CROSS JOIN LATERAL (
        SELECT w.run_id, w.n, w.priority, w.ready_at FROM holdfast.steps w
        WHERE w.lane = u.lane AND w.state = 'ready' AND w.ready_at <= clock_timestamp()
          AND ($5::text[] IS NULL OR w.run_id = ANY($5))
          AND (SELECT r.state IN ('running', 'undoing') AND NOT EXISTS (
                   SELECT FROM holdfast.holds h
                   WHERE (h.scope = 'workflow' AND h.value = r.workflow) OR (h.scope = 'namespace' AND h.value = r.namespace))
               FROM holdfast.runs r WHERE r.id = w.run_id)
        ORDER BY w.priority DESC, w.ready_at LIMIT $3
        FOR UPDATE OF w SKIP LOCKED) s
    WHERE EXISTS (SELECT FROM holdfast.nodes WHERE id = $1 AND retired_at IS NULL)
      AND NOT EXISTS (SELECT FROM holdfast.holds h WHERE h.scope = 'step' AND h.value = l.name)
    ORDER BY s.priority DESC, s.ready_at LIMIT $3)
UPDATE holdfast.steps s SET state = 'running', agent = $1, attempt = s.attempt + 1, fence = s.fence + 1,
                   started_at = clock_timestamp(),
                   complete_by = clock_timestamp() + make_interval(secs => s.timeout_s)
FROM next
WHERE s.run_id = next.run_id AND s.n = next.n
RETURNING s.run_id, s.n, s.key, s.name, s.fence, s.attempt, s.losses, s.excused, s.attempts_max,
          s.timeout_s, s.input, s.retry, s.checkpoint, s.issued_at, s.error, s.timeouts, s.throttled, s.effect

-- name: take_allowance
UPDATE holdfast.breakers SET allowance = allowance - $2, told_at = clock_timestamp() WHERE name = $1

-- What each breaker that is not closed, or in recent trouble, has in flight since its round began, and whether anything waits for
-- it: one index look per lane and priority, and the steps that run.
-- name: breaker_looks
WITH RECURSIVE watched AS (
    SELECT * FROM holdfast.breakers
    WHERE NOT forced AND (state <> 'closed' OR window_at > clock_timestamp() - make_interval(secs => $1))),
places(name, lane, priority) AS (
    SELECT b.name, l.id, (SELECT s.priority FROM holdfast.steps s WHERE s.state = 'ready' AND s.lane = l.id
                          ORDER BY s.priority DESC LIMIT 1)
    FROM watched b JOIN holdfast.lanes l ON l.depends = b.name WHERE b.state = 'probing'
    UNION ALL
    SELECT p.name, p.lane, (SELECT s.priority FROM holdfast.steps s WHERE s.state = 'ready' AND s.lane = p.lane
                            AND s.priority < p.priority ORDER BY s.priority DESC LIMIT 1)
    FROM places p WHERE p.priority IS NOT NULL),
waits AS (
    SELECT p.name FROM places p WHERE p.priority IS NOT NULL AND (
        SELECT true FROM holdfast.steps s WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority = p.priority
          AND s.ready_at <= clock_timestamp() ORDER BY s.ready_at LIMIT 1)),
flights AS (
    SELECT b.name, count(*) AS steps FROM watched b JOIN holdfast.lanes l ON l.depends = b.name
    JOIN holdfast.steps s ON s.state = 'running' AND s.lane = l.id AND s.started_at >= b.window_at
    WHERE b.state = 'probing' GROUP BY b.name)
SELECT b.name, b.state, b.round, b.ok, b.failed, b.window_at, b.told_at, b.wave, b.allowance, b.opened_at, b.open_until,
       b.open_s, b.trips, b.forced, b.actor, b.note, b.error,
       coalesce((SELECT f.steps FROM flights f WHERE f.name = b.name), 0)::int AS in_flight,
       EXISTS (SELECT FROM waits w WHERE w.name = b.name) AS waiting
FROM watched b ORDER BY b.name

-- name: change_breaker
WITH leads AS (
    SELECT epoch FROM holdfast.leases WHERE name = 'leader' AND epoch = $1 AND expires_at > clock_timestamp() FOR SHARE)
UPDATE holdfast.breakers SET state = $4::text, round = round + 1, ok = 0, failed = 0, wave = $5, allowance = $5,
    window_at = clock_timestamp(), told_at = clock_timestamp(), open_s = $6::float8, note = $7, actor = 'supervisor',
    opened_at = CASE WHEN $4::text = 'closed' THEN NULL ELSE coalesce(opened_at, clock_timestamp()) END,
    open_until = CASE WHEN $4::text = 'open' THEN clock_timestamp() + make_interval(secs => $6::float8) END,
    trips = CASE $4::text WHEN 'closed' THEN 0 WHEN 'open' THEN trips + 1 ELSE trips END
WHERE name = $2 AND round = $3 AND NOT forced AND EXISTS (SELECT FROM leads)
RETURNING 1

-- name: give_back_probes
WITH leads AS (
    SELECT epoch FROM holdfast.leases WHERE name = 'leader' AND epoch = $1 AND expires_at > clock_timestamp() FOR SHARE)
UPDATE holdfast.breakers SET allowance = least(wave, allowance + $4), told_at = clock_timestamp()
WHERE name = $2 AND round = $3 AND state = 'probing' AND NOT forced AND EXISTS (SELECT FROM leads)
RETURNING 1

-- name: force_breaker
INSERT INTO holdfast.breakers (name, state, round, opened_at, forced, actor, note)
VALUES ($1, $2::text, 1, CASE WHEN $2::text = 'open' THEN clock_timestamp() END, true, $3, $4)
ON CONFLICT (name) DO UPDATE SET state = $2::text, round = breakers.round + 1, ok = 0, failed = 0, wave = 0, allowance = 0,
    window_at = clock_timestamp(), told_at = clock_timestamp(), open_s = 0, trips = 0, forced = true, actor = $3, note = $4,
    error = NULL, open_until = NULL,
    opened_at = CASE WHEN $2::text = 'open' THEN coalesce(breakers.opened_at, clock_timestamp()) END
RETURNING name, state, round, ok, failed, window_at, told_at, wave, allowance, opened_at, open_until, open_s, trips, forced,
          actor, note, error

-- What is not closed is tried before it is trusted.
-- name: reset_breaker
UPDATE holdfast.breakers SET state = CASE state WHEN 'closed' THEN 'closed' ELSE 'probing' END, round = round + 1,
    ok = 0, failed = 0, wave = CASE state WHEN 'closed' THEN 0 ELSE 1 END,
    allowance = CASE state WHEN 'closed' THEN 0 ELSE 1 END, told_at = clock_timestamp(),
    window_at = CASE state WHEN 'closed' THEN 'epoch'::timestamptz ELSE clock_timestamp() END,
    open_s = 0, open_until = NULL, forced = false, actor = $2, note = $3
WHERE name = $1
RETURNING name, state, round, ok, failed, window_at, told_at, wave, allowance, opened_at, open_until, open_s, trips, forced,
          actor, note, error

-- name: add_hold
INSERT INTO holdfast.holds (scope, value, actor, note) VALUES ($1, $2, $3, $4)
ON CONFLICT (scope, value) DO NOTHING RETURNING 1

-- name: remove_hold
DELETE FROM holdfast.holds WHERE scope = $1 AND value = $2 RETURNING 1
