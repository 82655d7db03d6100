-- Events: what came in, what it started and woke. `emit` runs these statements also on connections of callers, which have
-- another search path: so functions are named with their schema there, and times are numbers. An `unnest` of several arrays is
-- a part of the language, and needs no schema.

-- Until the end of the transaction, nobody learns a new path for events of these types. A transaction locks types first, then
-- values, each in the order of their numbers.
-- name: lock_event_types
SELECT pg_catalog.pg_advisory_xact_lock_shared(1701016948, n) FROM pg_catalog.unnest($1::int[]) u(n)

-- name: lock_event_type
SELECT pg_catalog.pg_advisory_xact_lock(1701016948, $1::int)

-- Whoever sends or waits for events with one of these values does it before this transaction begins or after it has ended: so
-- an event and a wait for it cannot miss each other.
-- name: lock_event_values
SELECT pg_catalog.pg_advisory_xact_lock(1701016949, n) FROM pg_catalog.unnest($1::int[]) u(n)

-- name: event_paths
SELECT p.namespace, p.type, p.path FROM unnest($1::text[], $2::text[]) u(namespace, type)
JOIN holdfast.event_paths p ON p.namespace = u.namespace AND p.type = u.type

-- name: add_event_path
INSERT INTO holdfast.event_paths (namespace, type, path) VALUES ($1, $2, $3) ON CONFLICT (namespace, type, path) DO NOTHING

-- name: add_events
INSERT INTO holdfast.events (namespace, source, id, type, data, subject, time, attributes, actor, received_at)
SELECT u.namespace, u.source, u.id, u.type, u.data, u.subject, u.time, u.attributes, u.actor, pg_catalog.clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::text[], $8::text[], $9::text[])
     u(namespace, source, id, type, data, subject, time, attributes, actor)
ON CONFLICT (namespace, source, id) DO NOTHING
RETURNING namespace, source, id

-- name: add_event_keys
INSERT INTO holdfast.event_keys (namespace, type, path, value, received_at, source, id)
SELECT e.namespace, e.type, u.path, u.value, e.received_at, e.source, e.id
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) u(namespace, source, id, path, value)
JOIN holdfast.events e ON e.namespace = u.namespace AND e.source = u.source AND e.id = u.id
ON CONFLICT (namespace, type, path, value, received_at, source, id) DO NOTHING

-- name: add_event_takers
INSERT INTO holdfast.event_takers (namespace, source, id, run_id, wait, received_at)
SELECT e.namespace, e.source, e.id, u.run_id, u.wait, e.received_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) u(namespace, source, id, run_id, wait)
JOIN holdfast.events e ON e.namespace = u.namespace AND e.source = u.source AND e.id = u.id
ON CONFLICT (namespace, source, id, run_id, wait) DO NOTHING

-- name: event_takers
SELECT t.namespace, t.source, t.id, t.run_id, t.wait
FROM unnest($1::text[], $2::text[], $3::text[]) u(namespace, source, id)
JOIN holdfast.event_takers t ON t.namespace = u.namespace AND t.source = u.source AND t.id = u.id
ORDER BY t.namespace, t.source, t.id, t.run_id, t.wait

-- The runs that wait for one of these now.
-- name: event_waits
SELECT DISTINCT s.name, s.run_id
FROM pg_catalog.unnest($1::text[]) u(name)
CROSS JOIN LATERAL (SELECT name, run_id FROM holdfast.steps
                    WHERE name = u.name AND kind = 'signal' AND state = 'waiting'
                      AND pg_catalog.starts_with(name, '$event:') OFFSET 0) s
JOIN holdfast.runs r ON r.id = s.run_id AND r.finished_at IS NULL
ORDER BY s.name, s.run_id

-- The events that a waiting run has not got: those since it was made, after the newest that it got. A retry goes on from where
-- its run ended, so what counted for that run counts for it. An event is looked up by a range that only its key's index has in
-- order, so that a plan made on an empty table uses that index, too.
-- name: missed_events
SELECT u.run_id, u.name, e.source, e.id, e.data
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
     u(run_id, name, wait, namespace, type, path, value)
CROSS JOIN LATERAL (
    WITH RECURSIVE chain(id, created_at, retry_of) AS (
        SELECT r.id, r.created_at, r.retry_of FROM holdfast.runs r
        WHERE r.id = u.run_id AND r.finished_at IS NULL
          AND EXISTS (SELECT FROM holdfast.steps s WHERE s.run_id = r.id AND s.name = u.name AND s.kind = 'signal'
                      AND s.state = 'waiting')
        UNION ALL
        SELECT p.id, p.created_at, p.retry_of FROM chain c JOIN holdfast.runs p ON p.id = c.retry_of)
    SELECT pg_catalog.array_agg(c.id) AS ids,
           greatest(pg_catalog.min(c.created_at),
                    pg_catalog.max((SELECT pg_catalog.max(t.received_at) FROM holdfast.event_takers t
                                    WHERE t.run_id = c.id AND t.wait = u.wait))) AS since
    FROM chain c HAVING pg_catalog.count(*) > 0) w
CROSS JOIN LATERAL (SELECT k.source, k.id, k.received_at FROM holdfast.event_keys k
                    WHERE k.namespace = u.namespace AND k.type = u.type AND k.path = u.path AND k.value = u.value
                      AND k.received_at >= w.since
                    ORDER BY k.received_at, k.source, k.id LIMIT $8) k
CROSS JOIN LATERAL (SELECT source, id, data FROM holdfast.events
                    WHERE namespace = u.namespace AND source = k.source AND id >= k.id AND id <= k.id
                    ORDER BY id LIMIT 1) e
WHERE NOT EXISTS (SELECT FROM holdfast.event_takers t
                  WHERE t.run_id = ANY(w.ids) AND t.wait IN ('', u.wait) AND t.received_at = k.received_at
                    AND t.namespace = u.namespace AND t.source = k.source AND t.id = k.id)
ORDER BY u.run_id, u.name, k.received_at, k.source, k.id

-- The newest events of a type, for a path by which nobody has waited yet.
-- name: events_of_type
SELECT source, id, data, subject, time, attributes FROM holdfast.events
WHERE namespace = $1 AND type = $2 ORDER BY received_at DESC LIMIT $3

-- Waits for events that have been open for a while: somebody may have died before it looked for what came before the wait.
-- name: open_event_waits
SELECT s.name, s.run_id, s.n FROM holdfast.steps s
WHERE s.kind = 'signal' AND s.state = 'waiting' AND starts_with(s.name, '$event:') AND (s.name, s.run_id, s.n) > ($1, $2, $3)
ORDER BY s.name, s.run_id, s.n LIMIT $4

-- name: event
SELECT {Event} FROM holdfast.events WHERE namespace = $1 AND source = $2 AND id = $3

-- name: events
SELECT {Event} FROM holdfast.events
WHERE namespace = $1 AND (received_at, source, id) < ($2::timestamptz, $3::text, $4::text) AND ($5::text IS NULL OR type = $5)
ORDER BY received_at DESC, source DESC, id DESC LIMIT $6

-- name: triggers_on
SELECT DISTINCT t.namespace, t.type, t.name, t.version, t.parameter
FROM unnest($2::text[]) u(type) JOIN holdfast.triggers t ON t.namespace = $1 AND t.type = u.type
ORDER BY t.type, t.name, t.version

-- name: triggers_of
SELECT namespace, type, name, version, parameter FROM holdfast.triggers WHERE origin = $1
ORDER BY namespace, type, name

-- name: add_triggers
INSERT INTO holdfast.triggers (namespace, type, name, version, parameter, origin)
SELECT u.namespace, u.type, u.name, u.version, u.parameter, u.origin
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
     u(namespace, type, name, version, parameter, origin)
ON CONFLICT (namespace, type, name, origin) DO UPDATE SET version = excluded.version, parameter = excluded.parameter

-- name: remove_triggers
DELETE FROM holdfast.triggers t USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) u(namespace, type, name, origin)
WHERE t.namespace = u.namespace AND t.type = u.type AND t.name = u.name AND t.origin = u.origin

-- name: declared_triggers
SELECT d.origin, d.digest, d.body, extract(epoch FROM d.first_seen)::float8 FROM holdfast.declared d
WHERE d.digest IN (SELECT jsonb_array_elements_text(n.offers::jsonb -> 'triggers') FROM holdfast.nodes n
                   WHERE n.retired_at IS NULL AND n.lease_until > clock_timestamp())
ORDER BY d.origin, d.first_seen, d.digest LIMIT $1

-- name: declare_triggers
INSERT INTO holdfast.declared (origin, digest, body, first_seen)
SELECT u.origin, u.digest, u.body, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) u(origin, digest, body, is_empty)
WHERE NOT u.is_empty OR EXISTS (SELECT FROM holdfast.triggers t WHERE t.origin = u.origin)
ON CONFLICT (origin, digest) DO NOTHING
RETURNING origin, digest

-- What an occasion has collected stays with it.
-- name: old_events
SELECT e.namespace, e.source, e.id
FROM (SELECT namespace, source, id, received_at FROM holdfast.events WHERE received_at < $1 ORDER BY received_at OFFSET 0) e
WHERE NOT EXISTS (SELECT FROM holdfast.collected c WHERE c.namespace = e.namespace AND c.source = e.source AND c.id = e.id)
ORDER BY e.received_at LIMIT $2

-- name: forget_events
DELETE FROM holdfast.events e USING unnest($1::text[], $2::text[], $3::text[]) u(namespace, source, id)
WHERE e.namespace = u.namespace AND e.source = u.source AND e.id = u.id AND e.received_at < $4
  AND NOT EXISTS (SELECT FROM holdfast.collected c WHERE c.namespace = u.namespace AND c.source = u.source AND c.id = u.id)

-- name: old_event_keys
SELECT namespace, type, path, value, source, id FROM holdfast.event_keys WHERE received_at < $1 ORDER BY received_at LIMIT $2

-- name: forget_event_keys
DELETE FROM holdfast.event_keys k
USING unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) u(namespace, type, path, value, source, id)
WHERE k.namespace = u.namespace AND k.type = u.type AND k.path = u.path AND k.value = u.value AND k.source = u.source
  AND k.id = u.id AND k.received_at < $7

-- name: old_event_takers
SELECT namespace, source, id, run_id, wait FROM holdfast.event_takers WHERE received_at < $1 ORDER BY received_at LIMIT $2

-- name: forget_event_takers
DELETE FROM holdfast.event_takers t
USING unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) u(namespace, source, id, run_id, wait)
WHERE t.namespace = u.namespace AND t.source = u.source AND t.id = u.id AND t.run_id = u.run_id AND t.wait = u.wait
  AND t.received_at < $6
