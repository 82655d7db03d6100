-- The heart of a process that is gone says so here, at once. A session's lock cannot: it is lost with any connection.
ALTER TABLE holdfast.nodes DROP COLUMN lock_key, ADD COLUMN gone_at timestamptz;
