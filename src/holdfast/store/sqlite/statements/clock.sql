-- One clock for all processes of the host: see clock.py.

-- name: clock
SELECT boot, anchor FROM clock WHERE one = 1

-- name: clock_in_use
SELECT 1 FROM nodes INDEXED BY nodes_live WHERE retired_at IS NULL AND gone_at IS NULL AND lease_until > ? LIMIT 1

-- name: set_clock
INSERT INTO clock (one, boot, anchor) VALUES (1, ?1, ?2) ON CONFLICT (one) DO UPDATE SET boot = ?1, anchor = ?2

-- name: move_leases
UPDATE leases SET expires_at = expires_at + ?1, renewed_at = renewed_at + ?1

-- name: move_nodes
UPDATE nodes SET lease_until = lease_until + ?1 WHERE retired_at IS NULL

-- name: move_steps
UPDATE steps SET started_at = started_at + ?1 WHERE state = 'running'
