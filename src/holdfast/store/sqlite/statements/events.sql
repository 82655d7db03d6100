-- Events: what came in, what it started and woke. SQLite has only one write transaction at a time, so nothing needs a lock.

-- name: lock_event_types
SELECT ?1 WHERE 0

-- name: lock_event_type
SELECT ?1 WHERE 0

-- name: lock_event_values
SELECT ?1 WHERE 0

-- name: event_paths
SELECT p.namespace, p.type, p.path FROM json_each(?1) u JOIN json_each(?2) v ON v.key = u.key
CROSS JOIN event_paths p ON p.namespace = u.value AND p.type = v.value

-- name: add_event_path
INSERT INTO event_paths (namespace, type, path) VALUES (?1, ?2, ?3) ON CONFLICT (namespace, type, path) DO NOTHING

-- name: add_events
INSERT INTO events (namespace, source, id, type, data, subject, time, attributes, actor, received_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, store_now())
ON CONFLICT (namespace, source, id) DO NOTHING
RETURNING namespace, source, id

-- name: add_event_keys
INSERT INTO event_keys (namespace, type, path, value, received_at, source, id)
SELECT namespace, type, ?4, ?5, received_at, source, id FROM events WHERE namespace = ?1 AND source = ?2 AND id = ?3
ON CONFLICT (namespace, type, path, value, received_at, source, id) DO NOTHING

-- name: add_event_takers
INSERT INTO event_takers (namespace, source, id, run_id, wait, received_at)
SELECT namespace, source, id, ?4, ?5, received_at FROM events WHERE namespace = ?1 AND source = ?2 AND id = ?3
ON CONFLICT (namespace, source, id, run_id, wait) DO NOTHING

-- name: event_takers
SELECT t.namespace, t.source, t.id, t.run_id, t.wait
FROM json_each(?1) u JOIN json_each(?2) v ON v.key = u.key JOIN json_each(?3) w ON w.key = u.key
CROSS JOIN event_takers t ON t.namespace = u.value AND t.source = v.value AND t.id = w.value
ORDER BY t.namespace, t.source, t.id, t.run_id, t.wait

-- The runs that wait for one of these now.
-- name: event_waits
SELECT DISTINCT s.name, s.run_id
FROM json_each(?1) u
CROSS JOIN steps s INDEXED BY steps_events ON s.name = u.value AND s.kind = 'signal' AND s.state = 'waiting'
     AND substr(s.name, 1, 7) = '$event:'
CROSS JOIN runs r ON r.id = s.run_id AND r.finished_at IS NULL
ORDER BY s.name, s.run_id

-- The events that a waiting run has not got: those since it was made, after the newest that it got. A retry goes on from where
-- its run ended, so what counted for that run counts for it.
-- name: missed_events
WITH RECURSIVE chain(id, created_at, retry_of) AS (
    SELECT r.id, r.created_at, r.retry_of FROM runs r
    WHERE r.id = ?1 AND r.finished_at IS NULL
      AND EXISTS (SELECT 1 FROM steps s WHERE s.run_id = r.id AND s.name = ?2 AND +s.kind = 'signal' AND +s.state = 'waiting')
    UNION ALL
    SELECT p.id, p.created_at, p.retry_of FROM chain c CROSS JOIN runs p ON p.id = c.retry_of)
SELECT ?1, ?2, e.source, e.id, e.data
FROM (SELECT max(min(c.created_at), coalesce(max((SELECT max(t.received_at) FROM event_takers t
                                                  WHERE t.run_id = c.id AND t.wait = ?3)), 0.0)) AS since
      FROM chain c HAVING count(*) > 0) w
CROSS JOIN event_keys k ON k.namespace = ?4 AND k.type = ?5 AND k.path = ?6 AND k.value = ?7 AND k.received_at >= w.since
CROSS JOIN events e ON e.namespace = ?4 AND e.source = k.source AND e.id = k.id
WHERE NOT EXISTS (SELECT 1 FROM chain c CROSS JOIN event_takers t
                  ON t.run_id = c.id AND t.wait IN ('', ?3) AND t.received_at = k.received_at
                    AND t.namespace = ?4 AND t.source = k.source AND t.id = k.id)
ORDER BY k.received_at, k.source, k.id LIMIT ?8

-- The newest events of a type, for a path by which nobody has waited yet.
-- name: events_of_type
SELECT source, id, data, subject, time, attributes FROM events INDEXED BY events_type
WHERE namespace = ?1 AND type = ?2 ORDER BY received_at DESC LIMIT ?3

-- Waits for events that have been open for a while: somebody may have died before it looked for what came before the wait.
-- name: open_event_waits
SELECT s.name, s.run_id, s.n FROM steps s INDEXED BY steps_events
WHERE s.kind = 'signal' AND s.state = 'waiting' AND substr(s.name, 1, 7) = '$event:'
  AND s.name >= ?1 AND (s.name, s.run_id, s.n) > (?1, ?2, ?3)
ORDER BY s.name, s.run_id, s.n LIMIT ?4

-- name: event
SELECT {Event} FROM events WHERE namespace = ?1 AND source = ?2 AND id = ?3

-- name: events
SELECT {Event} FROM events
WHERE namespace = ?1 AND (received_at, source, id) < (?2, ?3, ?4) AND (?5 IS NULL OR type = ?5)
ORDER BY received_at DESC, source DESC, id DESC LIMIT ?6

-- name: triggers_on
SELECT DISTINCT t.namespace, t.type, t.name, t.version, t.parameter
FROM json_each(?2) u CROSS JOIN triggers t ON t.namespace = ?1 AND t.type = u.value
ORDER BY t.type, t.name, t.version

-- name: triggers_of
SELECT namespace, type, name, version, parameter FROM triggers INDEXED BY triggers_origin WHERE origin = ?1
ORDER BY namespace, type, name

-- name: add_triggers
INSERT INTO triggers (namespace, type, name, version, parameter, origin) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (namespace, type, name, origin) DO UPDATE SET version = excluded.version, parameter = excluded.parameter

-- name: remove_triggers
DELETE FROM triggers WHERE namespace = ?1 AND type = ?2 AND name = ?3 AND origin = ?4

-- name: declared_triggers
SELECT d.origin, d.digest, d.body, d.first_seen FROM declared d
WHERE d.digest IN (SELECT j.value FROM nodes n INDEXED BY nodes_live, json_each(n.offers, '$.triggers') j
                   WHERE n.retired_at IS NULL AND n.lease_until > (SELECT store_now()))
ORDER BY d.origin, d.first_seen, d.digest LIMIT ?1

-- name: declare_triggers
INSERT INTO declared (origin, digest, body, first_seen)
SELECT ?1, ?2, ?3, store_now() WHERE NOT ?4 OR EXISTS (SELECT 1 FROM triggers t WHERE t.origin = ?1)
ON CONFLICT (origin, digest) DO NOTHING
RETURNING origin, digest

-- What an occasion has collected stays with it.
-- name: old_events
SELECT namespace, source, id FROM events e INDEXED BY events_received
WHERE received_at < ?1
  AND NOT EXISTS (SELECT 1 FROM collected c INDEXED BY collected_event
                  WHERE c.namespace = e.namespace AND c.source = e.source AND c.id = e.id)
ORDER BY received_at LIMIT ?2

-- name: forget_events
DELETE FROM events WHERE namespace = ?1 AND source = ?2 AND id = ?3 AND received_at < ?4
  AND NOT EXISTS (SELECT 1 FROM collected c INDEXED BY collected_event WHERE c.namespace = ?1 AND c.source = ?2 AND c.id = ?3)

-- name: old_event_keys
SELECT namespace, type, path, value, source, id FROM event_keys INDEXED BY event_keys_received
WHERE received_at < ?1 ORDER BY received_at LIMIT ?2

-- name: forget_event_keys
DELETE FROM event_keys WHERE namespace = ?1 AND type = ?2 AND path = ?3 AND value = ?4 AND source = ?5 AND id = ?6
  AND received_at < ?7

-- name: old_event_takers
SELECT namespace, source, id, run_id, wait FROM event_takers INDEXED BY event_takers_received
WHERE received_at < ?1 ORDER BY received_at LIMIT ?2

-- name: forget_event_takers
DELETE FROM event_takers WHERE namespace = ?1 AND source = ?2 AND id = ?3 AND run_id = ?4 AND wait = ?5
  AND received_at < ?6
