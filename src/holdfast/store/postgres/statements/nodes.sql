-- Nodes, their leases, the leader, and what the leader may do. Its every write checks its epoch in the same statement.

-- name: register
INSERT INTO holdfast.nodes (id, host, pid, roles, offers, capacity, lease_until, code)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + make_interval(secs => $7), $8)
ON CONFLICT (id) DO UPDATE SET offers = excluded.offers, capacity = excluded.capacity, code = excluded.code

-- name: renew
UPDATE holdfast.nodes
SET lease_until = clock_timestamp() + make_interval(secs => $2),
    offers = CASE WHEN $3::text IS NULL THEN offers ELSE jsonb_set(offers::jsonb, '{pulse}', $3::jsonb
                 || jsonb_build_object('at', extract(epoch FROM clock_timestamp())::float8 - $4::float8))::text END
WHERE id = $1 AND retired_at IS NULL AND gone_at IS NULL
RETURNING clock_timestamp()

-- Said by the heart of a process that is gone: its lease ends now.
-- name: say_gone
UPDATE holdfast.nodes SET gone_at = clock_timestamp(), lease_until = least(lease_until, clock_timestamp())
WHERE id = $1 AND retired_at IS NULL

-- name: retire
WITH runs_left AS (
    UPDATE holdfast.runs SET owner = NULL, fence = fence + 1, state = holdfast.freed(id, state) WHERE owner = $1),
steps_left AS (
    UPDATE holdfast.steps SET state = 'ready', agent = NULL, complete_by = NULL, fence = fence + 1, excused = excused + 1
    WHERE agent = $1 AND state = 'running'),
leases_left AS (
    UPDATE holdfast.leases SET holder = NULL, expires_at = clock_timestamp(), renewed_at = clock_timestamp()
    WHERE holder = $1)
UPDATE holdfast.nodes SET retired_at = clock_timestamp() WHERE id = $1 AND retired_at IS NULL

-- name: reconcile_runs
UPDATE holdfast.runs SET owner = NULL, fence = fence + 1, state = holdfast.freed(id, state)
WHERE owner = $1
  AND NOT EXISTS (SELECT FROM unnest($2::text[], $3::int[]) u(id, fence) WHERE u.id = runs.id AND u.fence = runs.fence)
RETURNING 1

-- name: reconcile_steps
UPDATE holdfast.steps SET state = 'ready', agent = NULL, complete_by = NULL, fence = fence + 1, excused = excused + 1
WHERE agent = $1 AND state = 'running'
  AND NOT EXISTS (SELECT FROM unnest($2::text[], $3::int[], $4::int[]) u(run_id, n, fence)
                  WHERE u.run_id = steps.run_id AND u.n = steps.n AND u.fence = steps.fence)
RETURNING 1

-- Whoever takes it over notes since when it was not renewed, and by whom.
-- name: lead
INSERT INTO holdfast.leases (name, holder, epoch, expires_at, since, renewed_at)
VALUES ($3, $1, 1, clock_timestamp() + make_interval(secs => $2), clock_timestamp(), clock_timestamp())
ON CONFLICT (name) DO UPDATE
SET holder = $1, expires_at = clock_timestamp() + make_interval(secs => $2), renewed_at = clock_timestamp(),
    (epoch, since, vacant_s, predecessor) = (
        SELECT CASE WHEN keeps THEN leases.epoch ELSE leases.epoch + 1 END,
               CASE WHEN keeps THEN leases.since ELSE clock_timestamp() END,
               CASE WHEN keeps THEN leases.vacant_s
                    ELSE extract(epoch FROM clock_timestamp() - leases.renewed_at)::float8 END,
               CASE WHEN keeps THEN leases.predecessor ELSE leases.holder END
        FROM (SELECT leases.holder IS NOT DISTINCT FROM $1 AND leases.expires_at > clock_timestamp() AS keeps) now)
WHERE leases.holder = $1 OR leases.holder IS NULL OR leases.expires_at <= clock_timestamp()
   OR EXISTS (SELECT FROM holdfast.nodes WHERE nodes.id = leases.holder
              AND (nodes.retired_at IS NOT NULL OR nodes.gone_at IS NOT NULL))
RETURNING epoch

-- name: resign
UPDATE holdfast.leases SET holder = NULL, expires_at = clock_timestamp(), renewed_at = clock_timestamp() WHERE holder = $1

-- name: leader
SELECT holder, epoch, expires_at, since, vacant_s, predecessor FROM holdfast.leases
WHERE name = 'leader' AND holder IS NOT NULL

-- name: living
SELECT id, host, pid, roles, offers, capacity, started_at, lease_until, retired_at FROM holdfast.nodes
WHERE retired_at IS NULL ORDER BY lease_until DESC LIMIT $1

-- name: dead_nodes
SELECT id, gone_at IS NOT NULL AS gone FROM holdfast.nodes
WHERE retired_at IS NULL AND lease_until < clock_timestamp() ORDER BY lease_until LIMIT 1000

-- Everybody who holds a step or run and is not a live node: found by what is held, whatever the node's row says, one
-- index look per holder, however much each holds.
-- name: strangers
WITH RECURSIVE
agents(id) AS (
    SELECT min(agent) FROM holdfast.steps WHERE state = 'running'
    UNION ALL
    SELECT (SELECT min(agent) FROM holdfast.steps WHERE state = 'running' AND agent > agents.id) FROM agents
    WHERE agents.id IS NOT NULL),
owners(id) AS (
    SELECT min(owner) FROM holdfast.runs WHERE owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(owner) FROM holdfast.runs WHERE owner IS NOT NULL AND owner > owners.id) FROM owners
    WHERE owners.id IS NOT NULL)
SELECT h.id FROM (SELECT id FROM agents UNION SELECT id FROM owners) h
LEFT JOIN holdfast.nodes n ON n.id = h.id AND n.retired_at IS NULL
WHERE h.id IS NOT NULL AND n.id IS NULL

-- The node's row is locked first, and its lease looked at then: a renewal that is on its way comes before or after.
-- name: reclaim
WITH seen AS (
    SELECT lease_until, retired_at FROM holdfast.nodes WHERE id = $1 FOR UPDATE),
alive AS (
    SELECT FROM seen WHERE $4::boolean AND retired_at IS NULL AND lease_until >= clock_timestamp()),
leads AS (
    SELECT epoch FROM holdfast.leases WHERE name = 'leader' AND epoch = $2 AND expires_at > clock_timestamp()
      AND NOT EXISTS (SELECT FROM alive) FOR SHARE),
lost_runs AS (
    SELECT id FROM holdfast.runs WHERE owner = $1 AND EXISTS (SELECT FROM leads) ORDER BY id LIMIT $3 FOR UPDATE),
freed AS (
    UPDATE holdfast.runs r SET owner = NULL, fence = r.fence + 1, state = holdfast.freed(r.id, r.state)
    FROM lost_runs WHERE r.id = lost_runs.id RETURNING 1)
SELECT (SELECT count(*) FROM alive) AS alive, (SELECT count(*) FROM leads) AS leads,
       (SELECT count(*) FROM freed) AS runs

-- In the transaction of `bury`, which holds its epoch.
-- name: held_by
SELECT run_id, n, fence, name, attempt, losses, excused, timeouts, throttled, attempts_max, retry, issued_at
FROM holdfast.steps WHERE agent = $1 AND state = 'running' ORDER BY run_id, n LIMIT $2 FOR UPDATE

-- What became of steps whose rows this transaction has locked.
-- name: reclaim_steps
WITH u AS (
    SELECT * FROM unnest($1::text[], $2::int[], $3::int[], $4::text[], $5::float8[], $6::int[], $7::int[], $8::text[])
                  u(run_id, n, fence, state, after_s, losses, timeouts, fingerprint)),
kept AS (
    INSERT INTO holdfast.attempts (run_id, n, attempt, ending, agent, error, started_at)
    SELECT s.run_id, s.n, s.attempt, $9, s.agent, $10, s.started_at
    FROM u JOIN holdfast.steps s ON s.run_id = u.run_id AND s.n = u.n),
taken AS (
    UPDATE holdfast.steps s SET fence = s.fence + 1, complete_by = NULL, agent = NULL, state = u.state,
        losses = s.losses + u.losses, timeouts = s.timeouts + u.timeouts,
        error = CASE WHEN u.state = 'failed' OR u.fingerprint IS NOT NULL THEN $10 ELSE s.error END,
        finished_at = CASE WHEN u.state = 'failed' THEN clock_timestamp() END,
        ready_at = CASE WHEN u.fingerprint IS NOT NULL THEN to_timestamp(253402300799)
                        ELSE clock_timestamp() + make_interval(secs => u.after_s) END
    FROM u WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence
    RETURNING s.run_id, s.n, s.name, u.state, u.fingerprint),
listed AS (
    INSERT INTO holdfast.quarantine (run_id, n, fingerprint, step, error, place)
    SELECT run_id, n, fingerprint, name, $11, $12 FROM taken WHERE fingerprint IS NOT NULL
    ON CONFLICT (run_id, n) DO UPDATE SET fingerprint = excluded.fingerprint, step = excluded.step,
        error = excluded.error, place = excluded.place, at = excluded.at),
told AS (
    INSERT INTO holdfast.journal (actor, verb, run_id, n, note)
    SELECT 'supervisor', 'quarantine', run_id, n, fingerprint || ' ' || $12 FROM taken WHERE fingerprint IS NOT NULL),
noted AS (
    INSERT INTO holdfast.failures (run_id, n)
    SELECT run_id, n FROM taken WHERE state = 'failed' OR fingerprint IS NOT NULL)
SELECT count(*) FROM taken

-- name: retire_reclaimed
UPDATE holdfast.nodes SET retired_at = clock_timestamp() WHERE id = $1 AND retired_at IS NULL
  AND NOT EXISTS (SELECT FROM holdfast.runs WHERE owner = $1)
  AND NOT EXISTS (SELECT FROM holdfast.steps WHERE agent = $1 AND state = 'running')
RETURNING host, pid, roles

-- name: overdue_steps
WITH leads AS (
    SELECT epoch FROM holdfast.leases WHERE name = 'leader' AND epoch = $1 AND expires_at > clock_timestamp() FOR SHARE)
SELECT run_id, n, fence, name, attempt, losses, excused, timeouts, throttled, attempts_max, retry, issued_at
FROM holdfast.steps
WHERE state = 'running' AND complete_by < clock_timestamp() - make_interval(secs => $2) AND EXISTS (SELECT FROM leads)
ORDER BY complete_by LIMIT $3 FOR UPDATE SKIP LOCKED

-- name: close_signals
WITH leads AS (
    SELECT epoch FROM holdfast.leases WHERE name = 'leader' AND epoch = $1 AND expires_at > clock_timestamp() FOR SHARE),
late AS (
    SELECT s.id FROM holdfast.signals s JOIN holdfast.runs r ON r.id = s.run_id
    WHERE s.delivered_seq IS NULL AND r.finished_at IS NOT NULL AND EXISTS (SELECT FROM leads)
    ORDER BY s.id LIMIT $2)
UPDATE holdfast.signals s SET delivered_seq = 0 FROM late WHERE s.id = late.id AND s.delivered_seq IS NULL

-- name: journal_add
INSERT INTO holdfast.journal (actor, verb, run_id, n, note) VALUES ($1, $2, $3, $4, $5)
