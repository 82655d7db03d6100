-- What holds for all processes on the store.

-- name: setting
SELECT value FROM settings WHERE name = ?1

-- name: set_setting
INSERT INTO settings (name, value, set_at) VALUES (?1, ?2, store_now())
ON CONFLICT (name) DO UPDATE SET value = excluded.value, set_at = excluded.set_at WHERE value <> excluded.value
