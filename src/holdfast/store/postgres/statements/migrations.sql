-- name: make_migrations
CREATE TABLE IF NOT EXISTS holdfast_migrations (
    version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp())

-- name: applied_migrations
SELECT version, checksum FROM holdfast_migrations ORDER BY version

-- name: record_migration
INSERT INTO holdfast_migrations (version, name, checksum) VALUES ($1, $2, $3)
