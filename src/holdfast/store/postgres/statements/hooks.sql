-- Hooks: where webhooks come in.

-- name: hook
SELECT {Hook} FROM holdfast.hooks WHERE name = $1

-- name: hooks
SELECT {Hook} FROM holdfast.hooks WHERE namespace = $1 ORDER BY name LIMIT $2

-- name: add_hook
INSERT INTO holdfast.hooks (name, namespace, scheme, secret, header, actor, created_at)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp())
ON CONFLICT (name) DO NOTHING

-- name: rotate_hook
UPDATE holdfast.hooks SET old_secret = secret, old_until = clock_timestamp() + make_interval(secs => $3), secret = $2,
                          rotated_at = clock_timestamp()
WHERE name = $1

-- name: remove_hook
DELETE FROM holdfast.hooks WHERE name = $1
