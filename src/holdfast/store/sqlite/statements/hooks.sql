-- Hooks: where webhooks come in.

-- name: hook
SELECT {Hook} FROM hooks WHERE name = ?1

-- name: hooks
SELECT {Hook} FROM hooks WHERE namespace = ?1 ORDER BY name LIMIT ?2

-- name: add_hook
INSERT INTO hooks (name, namespace, scheme, secret, header, actor, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, store_now())
ON CONFLICT (name) DO NOTHING

-- name: rotate_hook
UPDATE hooks SET old_secret = secret, old_until = store_now() + ?3, secret = ?2, rotated_at = store_now() WHERE name = ?1

-- name: remove_hook
DELETE FROM hooks WHERE name = ?1
