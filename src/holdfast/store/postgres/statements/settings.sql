-- What holds for all processes on the store.

-- name: setting
SELECT value FROM holdfast.settings WHERE name = $1

-- name: set_setting
INSERT INTO holdfast.settings AS s (name, value, set_at) VALUES ($1, $2, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET value = excluded.value, set_at = excluded.set_at WHERE s.value <> excluded.value
