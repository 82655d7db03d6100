-- name: make_migrations
CREATE TABLE IF NOT EXISTS migrations (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at REAL NOT NULL) STRICT

-- name: applied_migrations
SELECT version, checksum, name FROM migrations ORDER BY version

-- name: record_migration
INSERT INTO migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, store_now())

-- name: nodes_in_the_way
SELECT host, pid, lease_until - store_now() FROM nodes WHERE retired_at IS NULL AND lease_until > store_now() ORDER BY host, pid
