-- Nodes and their leases.

-- name: register
INSERT INTO nodes (id, host, pid, roles, offers, capacity, started_at, lease_until, code)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, store_now(), store_now() + ?7, ?8)
ON CONFLICT (id) DO UPDATE SET offers = excluded.offers, capacity = excluded.capacity, code = excluded.code

-- The pulse is how the node described its state when its heart last heard from it, ?4 seconds ago.
-- name: renew
UPDATE nodes SET lease_until = store_now() + ?2,
                 offers = CASE WHEN ?3 IS NULL THEN offers
                               ELSE json_set(offers, '$.pulse', json_set(?3, '$.at', store_now() - ?4)) END
WHERE id = ?1 AND retired_at IS NULL AND gone_at IS NULL
RETURNING store_now()

-- The node's process is gone, so its lease ends now. Its heart writes this, or a supervisor that sees it.
-- name: say_gone
UPDATE nodes SET gone_at = store_now(), lease_until = min(lease_until, store_now()) WHERE id = ?1 AND retired_at IS NULL

-- name: retire
UPDATE nodes SET retired_at = store_now() WHERE id = ?1 AND retired_at IS NULL

-- name: owned_by
SELECT id, fence FROM runs INDEXED BY runs_owned WHERE owner = ?1 LIMIT ?2

-- name: claimed_by
SELECT run_id, n, fence FROM steps INDEXED BY steps_held WHERE state = 'running' AND agent = ?1

-- name: living
SELECT {Node} FROM nodes INDEXED BY nodes_live WHERE retired_at IS NULL ORDER BY lease_until DESC LIMIT ?1

-- name: nodes
SELECT {Node} FROM nodes ORDER BY retired_at IS NOT NULL, started_at DESC LIMIT 1000

-- How many steps every node has, and how many runs it owns. This reads as many index entries as there is work in
-- progress.
-- name: loads
SELECT node, sum(steps), sum(runs) FROM (
    SELECT agent AS node, count(*) AS steps, 0 AS runs FROM steps INDEXED BY steps_held WHERE state = 'running' GROUP BY agent
    UNION ALL
    SELECT owner, 0, count(*) FROM runs INDEXED BY runs_owned WHERE owner IS NOT NULL GROUP BY owner)
GROUP BY node ORDER BY node LIMIT 10000

-- name: add_node
INSERT INTO nodes (id, host, pid, roles, offers, capacity, started_at, lease_until, code)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, store_now(), store_now() + ?7, ?8)
ON CONFLICT (id) DO NOTHING

-- The node reaches the store through a server. Its secret is made once, and its token stays the same.
-- name: make_remote
INSERT INTO remote_nodes (node, token, secret) VALUES (?1, ?2, ?3) RETURNING secret

-- name: remote_secret
SELECT r.secret FROM remote_nodes r JOIN nodes n ON n.id = r.node
WHERE r.node = ?1 AND r.token = ?2 AND n.retired_at IS NULL

-- name: remote_node
SELECT r.token, r.secret, n.offers, r.turn FROM remote_nodes r JOIN nodes n ON n.id = r.node
WHERE r.node = ?1 AND n.retired_at IS NULL

-- A claim of an overtaken turn finds no row, and takes nothing.
-- name: lock_turn
SELECT turn FROM remote_nodes WHERE node = ?1 AND turn < ?2

-- name: take_turn
UPDATE remote_nodes SET turn = ?2 WHERE node = ?1 AND turn < ?2

-- The connection of a remote node has ended. Its lease ends soon, unless the node renews it.
-- name: shorten
UPDATE nodes SET lease_until = min(lease_until, store_now() + ?2) WHERE id = ?1 AND retired_at IS NULL
  AND EXISTS (SELECT 1 FROM remote_nodes WHERE node = ?1)
