-- Everything lives in a schema of its own, so that it can share a database with the application's tables.
-- name: make_schema
CREATE SCHEMA IF NOT EXISTS holdfast

-- name: make_migrations
CREATE TABLE IF NOT EXISTS holdfast.migrations (
    version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp())

-- name: applied_migrations
SELECT version, checksum FROM holdfast.migrations ORDER BY version

-- name: record_migration
INSERT INTO holdfast.migrations (version, name, checksum) VALUES ($1, $2, $3)
