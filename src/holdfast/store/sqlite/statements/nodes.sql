-- Nodes, their leases, the leader, and what the leader may do. Its every write checks its epoch in the same transaction.

-- name: register
INSERT INTO nodes (id, host, pid, roles, offers, capacity, started_at, lease_until, code)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET offers = excluded.offers, capacity = excluded.capacity, code = excluded.code

-- name: renew
UPDATE nodes SET lease_until = ?1,
                 offers = CASE WHEN ?2 IS NULL THEN offers
                               ELSE json_set(offers, '$.pulse', json_set(?2, '$.at', ?3)) END
WHERE id = ?4 AND retired_at IS NULL AND gone_at IS NULL

-- Said by the heart of a process that is gone: its lease ends now.
-- name: say_gone
UPDATE nodes SET gone_at = ?1, lease_until = min(lease_until, ?1) WHERE id = ?2 AND retired_at IS NULL

-- name: owned_by
SELECT id, fence FROM runs INDEXED BY runs_owned WHERE owner = ? LIMIT ?

-- name: held_by
SELECT run_id, n, fence FROM steps INDEXED BY steps_held WHERE state = 'running' AND agent = ? LIMIT ?

-- A run that waits for nothing is pending again, so that it is claimed: it has not said yet what it waits for.
-- name: free_runs
UPDATE runs SET owner = NULL, fence = fence + 1,
                state = CASE WHEN EXISTS (SELECT 1 FROM steps WHERE run_id = runs.id AND +delivered_seq IS NULL)
                               OR EXISTS (SELECT 1 FROM signals WHERE run_id = runs.id AND delivered_seq IS NULL)
                               OR state <> 'running'
                             THEN state ELSE 'pending' END
WHERE id = ? AND +owner = ?

-- name: retire
UPDATE nodes SET retired_at = ? WHERE id = ? AND retired_at IS NULL

-- name: is_live
SELECT 1 FROM nodes WHERE id = ? AND retired_at IS NULL

-- name: node
SELECT lease_until, retired_at, gone_at FROM nodes WHERE id = ?

-- name: place
SELECT host, pid, roles FROM nodes WHERE id = ?

-- Whoever takes it over notes since when it was not renewed, and by whom.
-- name: lead
INSERT INTO leases (name, holder, epoch, expires_at, since, renewed_at) VALUES (?5, ?1, ?2, ?4, ?3, ?3)
ON CONFLICT (name) DO UPDATE SET holder = ?1, epoch = ?2, expires_at = ?4, renewed_at = ?3,
    since = CASE WHEN epoch = ?2 THEN since ELSE ?3 END,
    vacant_s = CASE WHEN epoch = ?2 THEN vacant_s ELSE ?3 - renewed_at END,
    predecessor = CASE WHEN epoch = ?2 THEN predecessor ELSE holder END

-- name: resign
UPDATE leases SET holder = NULL, expires_at = ?1, renewed_at = ?1 WHERE holder = ?2

-- name: leader
SELECT holder, epoch, expires_at, since, vacant_s, predecessor FROM leases WHERE name = ?

-- name: leads
SELECT 1 FROM leases WHERE name = 'leader' AND epoch = ? AND expires_at > ?

-- name: living
SELECT id, host, pid, roles, offers, capacity, started_at, lease_until, retired_at FROM nodes INDEXED BY nodes_live
WHERE retired_at IS NULL ORDER BY lease_until DESC LIMIT ?

-- name: live_nodes
SELECT id, lease_until, gone_at FROM nodes INDEXED BY nodes_live WHERE retired_at IS NULL ORDER BY lease_until

-- Everybody who holds a step or run, one index look per holder, however much each holds.
-- name: holders
WITH RECURSIVE
    agents (id) AS (
        SELECT min(agent) FROM steps WHERE state = 'running'
        UNION ALL
        SELECT (SELECT min(agent) FROM steps WHERE state = 'running' AND agent > agents.id) FROM agents
        WHERE agents.id IS NOT NULL),
    owners (id) AS (
        SELECT min(owner) FROM runs WHERE owner IS NOT NULL
        UNION ALL
        SELECT (SELECT min(owner) FROM runs WHERE owner IS NOT NULL AND owner > owners.id) FROM owners
        WHERE owners.id IS NOT NULL)
SELECT id FROM agents WHERE id IS NOT NULL UNION SELECT id FROM owners WHERE id IS NOT NULL

-- What a verdict about a lost or overdue attempt is made of.
-- name: counters
SELECT name, attempt, losses, excused, timeouts, throttled, attempts_max, retry, issued_at FROM steps
WHERE run_id = ? AND n = ? AND fence = ?

-- name: reclaim_steps
UPDATE steps SET fence = fence + 1, complete_by = NULL, agent = NULL, state = ?, ready_at = ?, finished_at = ?,
                 error = coalesce(?, error), losses = losses + ?, timeouts = timeouts + ?
WHERE run_id = ? AND n = ? AND fence = ?

-- name: overdue_steps
SELECT run_id, n, fence FROM steps INDEXED BY steps_held
WHERE state = 'running' AND agent = ? AND complete_by < ? ORDER BY complete_by LIMIT ?

-- name: late_signals
SELECT s.id FROM signals s INDEXED BY signals_undelivered CROSS JOIN runs r ON r.id = s.run_id
WHERE s.delivered_seq IS NULL AND r.finished_at IS NOT NULL ORDER BY s.run_id, s.id LIMIT ?

-- name: close_signals
UPDATE signals SET delivered_seq = 0 WHERE id = ? AND +delivered_seq IS NULL

-- name: journal_add
INSERT INTO journal (at, actor, verb, run_id, n, note) VALUES (?, ?, ?, ?, ?, ?)
