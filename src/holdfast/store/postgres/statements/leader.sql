-- Leading, and what the leader does about nodes that are gone and attempts that are overdue. Each of its transactions
-- first checks that its epoch is the current one, and locks the lease so that this stays so (`leads`).

-- The holder of a lease can renew it. Others can take it if it has no holder, has run out, or its holder is gone. A
-- node that takes it over notes for how long it was not renewed, and who had it before.
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

-- name: leader
SELECT holder, epoch, expires_at, since, vacant_s, predecessor FROM holdfast.leases WHERE name = $1 AND holder IS NOT NULL

-- name: leads
SELECT 1 FROM holdfast.leases WHERE name = $1 AND epoch = $2 AND expires_at > clock_timestamp() FOR SHARE

-- name: resign
UPDATE holdfast.leases SET holder = NULL, expires_at = clock_timestamp(), renewed_at = clock_timestamp() WHERE holder = $1

-- name: lapsed_nodes
SELECT {SeenNode(n)} FROM holdfast.nodes n
WHERE n.retired_at IS NULL AND n.lease_until < clock_timestamp() ORDER BY n.lease_until LIMIT 1000

-- Nodes that have a step or a run. This looks into the index once for each node, however much it has.
-- name: busy_nodes
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
SELECT id FROM agents WHERE id IS NOT NULL UNION SELECT id FROM owners WHERE id IS NOT NULL

-- Those of these nodes that have no row, or have left or were reclaimed. A paused process may have claimed after it was
-- reclaimed.
-- name: strangers
SELECT u.id FROM unnest($1::text[]) u(id)
WHERE NOT EXISTS (SELECT FROM holdfast.nodes n WHERE n.id = u.id AND n.retired_at IS NULL)

-- The node's row is locked before its lease is read, so that a renewal comes either before or after that.
-- name: lock_node
SELECT {SeenNode(n)} FROM holdfast.nodes n WHERE n.id = $1 FOR UPDATE

-- name: free_runs
UPDATE holdfast.runs r SET owner = NULL, fence = r.fence + 1, state = holdfast.freed(r.id, r.state)
WHERE r.id = ANY(ARRAY(SELECT id FROM holdfast.runs WHERE owner = $1 ORDER BY id LIMIT $2 FOR UPDATE))

-- The steps that an agent has, with what the leader needs to decide about each.
-- name: lost_by
SELECT {LostStep(s)} FROM holdfast.steps s WHERE s.agent = $1 AND s.state = 'running' ORDER BY s.run_id, s.n LIMIT $2 FOR UPDATE

-- name: overdue_steps
SELECT {LostStep(s)} FROM holdfast.steps s
WHERE s.state = 'running' AND s.complete_by < (SELECT clock_timestamp() - make_interval(secs => $1))
ORDER BY s.complete_by LIMIT $2 FOR UPDATE SKIP LOCKED

-- name: reclaim_steps
UPDATE holdfast.steps s SET fence = s.fence + 1, complete_by = NULL, agent = NULL, state = u.state,
    losses = s.losses + u.losses, timeouts = s.timeouts + u.timeouts, error = coalesce(u.error, s.error),
    finished_at = CASE WHEN u.state = 'failed' THEN clock_timestamp() END,
    ready_at = CASE WHEN u.after_s IS NULL THEN {never} ELSE clock_timestamp() + make_interval(secs => u.after_s) END
FROM unnest($1::text[], $2::int[], $3::int[], $4::text[], $5::float8[], $6::int[], $7::int[], $8::text[])
     u(run_id, n, fence, state, after_s, losses, timeouts, error)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence

-- Retires a node only if it has no run and no step left.
-- name: retire_reclaimed
UPDATE holdfast.nodes SET retired_at = clock_timestamp() WHERE id = $1 AND retired_at IS NULL
  AND NOT EXISTS (SELECT FROM holdfast.runs WHERE owner = $1)
  AND NOT EXISTS (SELECT FROM holdfast.steps WHERE agent = $1 AND state = 'running')

-- Signals that came too late: their run has ended.
-- name: late_signals
SELECT s.id FROM holdfast.signals s JOIN holdfast.runs r ON r.id = s.run_id
WHERE s.delivered_seq IS NULL AND r.finished_at IS NOT NULL ORDER BY s.id LIMIT $1

-- name: close_signals
UPDATE holdfast.signals s SET delivered_seq = 0 FROM unnest($1::bigint[]) u(id)
WHERE s.id = u.id AND coalesce(s.delivered_seq, -1) = -1

-- What there is for the leader to do, in one look at the beginning of its pass: each column is the beginning of one index. So
-- a duty for which there is nothing costs no more than that. See `Duties` for the columns. The orders keep the planner at the indexes.
-- name: duties
SELECT clock_timestamp(),
       (SELECT next_at FROM holdfast.schedules WHERE state = 'active' ORDER BY next_at LIMIT 1),
       (SELECT next_at FROM holdfast.composed_times WHERE next_at IS NOT NULL ORDER BY next_at LIMIT 1),
       (SELECT ends_at FROM holdfast.occasions WHERE state = 'open' ORDER BY ends_at LIMIT 1),
       (SELECT next_at FROM holdfast.asks WHERE state = 'open' AND next_at IS NOT NULL ORDER BY next_at LIMIT 1),
       (SELECT complete_by FROM holdfast.steps
        WHERE state = 'waiting' AND kind = 'callback' AND complete_by IS NOT NULL ORDER BY complete_by LIMIT 1),
       (SELECT true FROM holdfast.steps
        WHERE state = 'running' AND complete_by < (SELECT clock_timestamp() - make_interval(secs => $1)) ORDER BY agent LIMIT 1),
       (SELECT true FROM holdfast.breakers
        WHERE NOT forced AND (state <> 'closed' OR window_at > clock_timestamp() - make_interval(secs => $2)) LIMIT 1),
       coalesce((SELECT true FROM holdfast.fires WHERE NOT ended ORDER BY schedule, at, repeat LIMIT 1),
                (SELECT true FROM holdfast.backfills WHERE state = 'running' ORDER BY created_at LIMIT 1)),
       (SELECT true FROM holdfast.twins WHERE ended_at IS NULL ORDER BY lane, made_at LIMIT 1),
       (SELECT true FROM holdfast.failures ORDER BY id LIMIT 1),
       (SELECT true FROM holdfast.acts WHERE state = 'running' ORDER BY lease_until LIMIT 1),
       (SELECT true FROM holdfast.quarantine LIMIT 1),
       (SELECT true FROM holdfast.limits WHERE adaptive ORDER BY reported_at LIMIT 1),
       (SELECT true FROM holdfast.signals WHERE delivered_seq IS NULL ORDER BY run_id, id LIMIT 1),
       coalesce((SELECT true FROM holdfast.runs WHERE due_at IS NOT NULL AND finished_at IS NULL ORDER BY due_at, id LIMIT 1),
                (SELECT true FROM holdfast.steps WHERE due_at IS NOT NULL AND finished_at IS NULL ORDER BY due_at, run_id, n LIMIT 1)),
       (SELECT true FROM holdfast.steps
        WHERE kind = 'signal' AND state = 'waiting' AND starts_with(name, '$event:') ORDER BY name LIMIT 1),
       (SELECT true FROM holdfast.declared LIMIT 1)
