-- All tables are in their own schema, so that they can share a database with the application's tables.
-- name: make_schema
CREATE SCHEMA IF NOT EXISTS holdfast

-- name: make_migrations
CREATE TABLE IF NOT EXISTS holdfast.migrations (
    version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp())

-- name: applied_migrations
SELECT version, checksum, name FROM holdfast.migrations ORDER BY version

-- name: record_migration
INSERT INTO holdfast.migrations (version, name, checksum) VALUES ($1, $2, $3)

-- name: lock_schema
SELECT pg_try_advisory_xact_lock($1::bigint)

-- pg_locks shows a lock number of 64 bits in two columns of 32 bits.
-- name: schema_lock_holder
SELECT a.pid, a.usename, coalesce(nullif(a.application_name, ''), 'no name')
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.classid = ($1::bigint >> 32)::oid AND l.objid = ($1::bigint & 4294967295)::oid
  AND l.objsubid = 1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
LIMIT 1

-- name: nodes_in_the_way
SELECT host, pid, extract(epoch FROM lease_until - clock_timestamp())::float8 FROM holdfast.nodes
WHERE retired_at IS NULL AND lease_until > clock_timestamp() ORDER BY host, pid
