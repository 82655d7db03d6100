-- Composed triggers, and their occasions. SQLite has only one write transaction at a time, so nothing needs a lock.

-- name: composed_on
SELECT t.type, {Composed(c)} FROM json_each(?2) u
CROSS JOIN composed_types t ON t.namespace = ?1 AND t.type = u.value
CROSS JOIN composed c ON c.name = t.name
ORDER BY t.type, c.name

-- name: composed_named
SELECT {Composed(c)} FROM json_each(?1) u CROSS JOIN composed c ON c.name = u.value

-- name: composed_due
SELECT {Composed(c)}, (SELECT min(t.next_at) FROM composed_times t WHERE t.name = c.name)
FROM json_each(?1) u CROSS JOIN composed c ON c.name = u.value

-- name: composed_of
SELECT {Composed} FROM composed INDEXED BY composed_origin WHERE origin = ?1 ORDER BY name

-- name: composed
SELECT {Composed} FROM composed WHERE name > ?1 AND (?2 IS NULL OR +namespace = ?2) ORDER BY name LIMIT ?3

-- A name that another application has is left alone.
-- name: add_composed
INSERT INTO composed (name, namespace, workflow, version, body, digest, origin) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (name) DO UPDATE SET workflow = excluded.workflow, version = excluded.version, body = excluded.body, digest = excluded.digest
WHERE composed.origin = excluded.origin
RETURNING name

-- name: remove_composed
DELETE FROM composed WHERE name = ?1 AND origin = ?2

-- name: add_composed_types
INSERT INTO composed_types (namespace, type, name) VALUES (?1, ?2, ?3) ON CONFLICT (namespace, type, name) DO NOTHING

-- name: remove_composed_types
DELETE FROM composed_types WHERE name = ?1

-- name: composed_times
SELECT t.name, t.part, t.plan, t.cursor, t.next_at FROM json_each(?1) u CROSS JOIN composed_times t ON t.name = u.value
ORDER BY t.name, t.part

-- name: add_composed_times
INSERT INTO composed_times (name, part, plan, cursor, next_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name, part) DO UPDATE SET plan = excluded.plan, cursor = excluded.cursor, next_at = excluded.next_at

-- name: move_composed_times
UPDATE composed_times SET cursor = ?5, next_at = ?6 WHERE name = ?1 AND part = ?2 AND plan = ?3 AND cursor = ?4
RETURNING name, part

-- name: remove_composed_times
DELETE FROM composed_times WHERE name = ?1 AND part = ?2

-- name: declared_composed
SELECT d.origin, d.digest, d.body, d.first_seen FROM declared d
WHERE d.digest IN (SELECT j.value FROM nodes n INDEXED BY nodes_live, json_each(n.offers, '$.composed') j
                   WHERE n.retired_at IS NULL AND n.lease_until > (SELECT store_now()))
ORDER BY d.origin, d.first_seen, d.digest LIMIT ?1

-- name: declare_composed
INSERT INTO declared (origin, digest, body, first_seen)
SELECT ?1, ?2, ?3, store_now() WHERE NOT ?4 OR EXISTS (SELECT 1 FROM composed c WHERE c.origin = ?1)
ON CONFLICT (origin, digest) DO NOTHING
RETURNING origin, digest

-- name: open_occasions
INSERT INTO occasions (id, namespace, trigger_name, value, digest, opened_at, ends_at)
VALUES (?1, ?2, ?3, ?4, ?5, coalesce(?6, store_now()), coalesce(?6, store_now()) + ?7)
ON CONFLICT (id) DO NOTHING

-- name: occasions_of
SELECT store_now(), {Occasion(o)} FROM json_each(?1) u CROSS JOIN occasions o ON o.id = u.value

-- name: collected_of
SELECT c.occasion, c.part, c.source, c.id, c.at FROM json_each(?1) u CROSS JOIN collected c ON c.occasion = u.value
ORDER BY c.occasion, c.part, c.at, c.source, c.id

-- name: collected_data
SELECT c.occasion, c.part, c.source, c.id, c.at, e.data FROM json_each(?1) u
CROSS JOIN collected c ON c.occasion = u.value
CROSS JOIN events e ON e.namespace = c.namespace AND e.source = c.source AND e.id = c.id

-- name: add_collected
INSERT INTO collected (occasion, part, source, id, namespace, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (occasion, part, source, id) DO NOTHING

-- name: remove_collected
DELETE FROM collected WHERE occasion = ?1 AND part = ?2 AND source = ?3 AND id = ?4

-- name: move_occasions
UPDATE occasions SET state = ?2, digest = ?3, ends_at = ?4, note = ?5, ended_at = CASE WHEN ?2 <> 'open' THEN store_now() END
WHERE id = ?1 AND state = 'open'

-- name: note_late
UPDATE occasions SET late = late + ?2 WHERE id = ?1

-- What there is to do: times of triggers that have come, occasions whose time is over, and when the next of both is due.
-- name: occasion_looks
SELECT kind, name, part, at FROM (SELECT 'time' AS kind, name, part, next_at AS at FROM composed_times INDEXED BY composed_times_due
               WHERE next_at IS NOT NULL AND next_at <= (SELECT store_now()) ORDER BY next_at LIMIT ?1)
UNION ALL
SELECT kind, id, part, at FROM (SELECT 'over' AS kind, id, '' AS part, ends_at AS at FROM occasions INDEXED BY occasions_due
               WHERE state = 'open' AND ends_at <= (SELECT store_now()) ORDER BY ends_at LIMIT ?1)
UNION ALL
SELECT kind, name, part, at FROM (SELECT 'next' AS kind, '' AS name, '' AS part, next_at AS at FROM composed_times INDEXED BY composed_times_due
               WHERE next_at IS NOT NULL ORDER BY next_at LIMIT 1)
UNION ALL
SELECT kind, name, part, at FROM (SELECT 'next' AS kind, '' AS name, '' AS part, ends_at AS at FROM occasions INDEXED BY occasions_due
               WHERE state = 'open' ORDER BY ends_at LIMIT 1)

-- Open occasions that were last judged by another version of their trigger.
-- name: stale_occasions
SELECT o.id FROM occasions o INDEXED BY occasions_due CROSS JOIN composed c ON c.name = o.trigger_name
WHERE o.state = 'open' AND o.digest <> c.digest ORDER BY o.ends_at LIMIT ?1

-- name: occasions
SELECT {Occasion} FROM occasions INDEXED BY occasions_in
WHERE namespace = ?1 AND opened_at < ?2 AND (?3 IS NULL OR trigger_name = ?3) AND (?4 IS NULL OR state = ?4)
ORDER BY opened_at DESC, id LIMIT ?5

-- name: old_collected
SELECT c.occasion, c.part, c.source, c.id FROM occasions o INDEXED BY occasions_ended
CROSS JOIN collected c ON c.occasion = o.id
WHERE o.state <> 'open' AND o.ended_at < ?1 ORDER BY o.ended_at LIMIT ?2

-- name: forget_collected
DELETE FROM collected WHERE occasion = ?1 AND part = ?2 AND source = ?3 AND id = ?4
  AND EXISTS (SELECT 1 FROM occasions o WHERE o.id = ?1 AND o.ended_at < ?5)

-- name: old_occasions
SELECT o.id FROM occasions o INDEXED BY occasions_ended
WHERE o.state <> 'open' AND o.ended_at < ?1 AND NOT EXISTS (SELECT 1 FROM collected c WHERE c.occasion = o.id)
ORDER BY o.ended_at LIMIT ?2

-- name: forget_occasions
DELETE FROM occasions WHERE id = ?1 AND ended_at < ?2 AND NOT EXISTS (SELECT 1 FROM collected c WHERE c.occasion = ?1)
