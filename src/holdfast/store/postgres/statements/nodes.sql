-- Nodes and their leases.

-- name: register
INSERT INTO holdfast.nodes (id, host, pid, roles, offers, capacity, lease_until, code)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + make_interval(secs => $7), $8)
ON CONFLICT (id) DO UPDATE SET offers = excluded.offers, capacity = excluded.capacity, code = excluded.code

-- The pulse is how the node described its state when its heart last heard from it, $4 seconds ago.
-- name: renew
UPDATE holdfast.nodes
SET lease_until = clock_timestamp() + make_interval(secs => $2),
    offers = CASE WHEN $3::text IS NULL THEN offers ELSE jsonb_set(offers::jsonb, ARRAY['pulse'], $3::jsonb
                 || jsonb_build_object('at', extract(epoch FROM clock_timestamp())::float8 - $4::float8))::text END
WHERE id = $1 AND retired_at IS NULL AND gone_at IS NULL
RETURNING clock_timestamp()

-- The node's process is gone, so its lease ends now. Its heart writes this, or a supervisor that sees it.
-- name: say_gone
UPDATE holdfast.nodes SET gone_at = clock_timestamp(), lease_until = least(lease_until, clock_timestamp())
WHERE id = $1 AND retired_at IS NULL

-- name: retire
UPDATE holdfast.nodes SET retired_at = clock_timestamp() WHERE id = $1 AND retired_at IS NULL

-- Whoever frees these runs decides by their steps and signals. The rows are locked first, so that what their owner is
-- just writing is seen then.
-- name: owned_by
SELECT id, fence FROM holdfast.runs WHERE owner = $1 ORDER BY id LIMIT $2 FOR UPDATE

-- name: claimed_by
SELECT run_id, n, fence FROM holdfast.steps WHERE agent = $1 AND state = 'running' ORDER BY run_id, n

-- name: living
SELECT {Node} FROM holdfast.nodes WHERE retired_at IS NULL ORDER BY lease_until DESC LIMIT $1

-- name: nodes
SELECT {Node} FROM holdfast.nodes ORDER BY retired_at IS NOT NULL, started_at DESC LIMIT 1000

-- How many steps every node has, and how many runs it owns. This reads as many index entries as there is work in
-- progress.
-- name: loads
SELECT node, sum(steps)::int, sum(runs)::int FROM (
    SELECT agent AS node, count(*) AS steps, 0 AS runs FROM holdfast.steps WHERE state = 'running' GROUP BY agent
    UNION ALL
    SELECT owner, 0, count(*) FROM holdfast.runs WHERE owner IS NOT NULL GROUP BY owner) l
GROUP BY node ORDER BY node LIMIT 10000

-- name: add_node
INSERT INTO holdfast.nodes (id, host, pid, roles, offers, capacity, lease_until, code)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + make_interval(secs => $7), $8)
ON CONFLICT (id) DO NOTHING

-- The node reaches the store through a server. Its secret is made once, and its token stays the same.
-- name: make_remote
INSERT INTO holdfast.remote_nodes (node, token, secret) VALUES ($1, $2, $3) RETURNING secret

-- The row of the node is locked until its new offers are written.
-- name: remote_secret
SELECT r.secret FROM holdfast.remote_nodes r JOIN holdfast.nodes n ON n.id = r.node
WHERE r.node = $1 AND r.token = $2 AND n.retired_at IS NULL FOR UPDATE OF n

-- name: remote_node
SELECT r.token, r.secret, n.offers, r.turn FROM holdfast.remote_nodes r JOIN holdfast.nodes n ON n.id = r.node
WHERE r.node = $1 AND n.retired_at IS NULL

-- A claim of an overtaken turn finds no row, and takes nothing. The row is locked, so claims of one node take turns.
-- name: lock_turn
SELECT turn FROM holdfast.remote_nodes WHERE node = $1 AND turn < $2 FOR UPDATE

-- name: take_turn
UPDATE holdfast.remote_nodes SET turn = $2 WHERE node = $1 AND turn < $2

-- The connection of a remote node has ended. Its lease ends soon, unless the node renews it.
-- name: shorten
UPDATE holdfast.nodes SET lease_until = least(lease_until, clock_timestamp() + make_interval(secs => $2))
WHERE id = $1 AND retired_at IS NULL AND EXISTS (SELECT FROM holdfast.remote_nodes WHERE node = $1)
