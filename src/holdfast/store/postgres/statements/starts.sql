-- These also run on connections of callers, whose search path is theirs. A function that is called with fewer arguments
-- than it has is named with its schema: a nearer match in another schema would be called instead. `unnest` of several
-- arrays is part of the language, and always the server's own.

-- name: start
INSERT INTO holdfast.runs (id, namespace, workflow, version, state, priority, input, digest, tags, parent_id, parent_n, deadline)
SELECT u.id, u.namespace, u.workflow, u.version, 'pending', u.priority, u.input, u.digest, u.tags, u.parent_id,
       u.parent_n, pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => u.timeout_s)
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::bytea[], $7::bytea[], $8::text[],
            $9::text[], $10::int[], $11::float8[])
     u(id, namespace, workflow, version, priority, input, digest, tags, parent_id, parent_n, timeout_s)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: place
SELECT pg_catalog.concat(oid, ' since ', extract(epoch FROM pg_catalog.pg_postmaster_start_time()))
FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()

-- name: started_as
SELECT id, workflow, digest FROM holdfast.runs WHERE id = ANY($1::text[])
