-- Composed triggers, and their occasions. Events come in also on connections of callers, which have another search path: so
-- functions are named with their schema in what `emit` needs, and times are numbers. Whoever writes about an occasion has locked
-- its id among the values of events (`lock_event_values`).

-- name: composed_on
SELECT t.type, {Composed(c)} FROM unnest($2::text[]) u(type)
JOIN holdfast.composed_types t ON t.namespace = $1 AND t.type = u.type
JOIN holdfast.composed c ON c.name = t.name
ORDER BY t.type, c.name

-- name: composed_named
SELECT {Composed} FROM holdfast.composed WHERE name = ANY($1::text[])

-- Triggers with their next times. One statement, so that both are of the same version of the code.
-- name: composed_due
SELECT {Composed(c)}, (SELECT min(t.next_at) FROM holdfast.composed_times t WHERE t.name = c.name)
FROM holdfast.composed c WHERE c.name = ANY($1::text[])

-- name: composed_of
SELECT {Composed} FROM holdfast.composed WHERE origin = $1 ORDER BY name

-- name: composed
SELECT {Composed} FROM holdfast.composed WHERE name > $1 AND ($2::text IS NULL OR namespace = $2) ORDER BY name LIMIT $3

-- A name that another application has is left alone.
-- name: add_composed
INSERT INTO holdfast.composed AS c (name, namespace, workflow, version, body, digest, origin)
SELECT u.name, u.namespace, u.workflow, u.version, u.body, u.digest, u.origin
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
     u(name, namespace, workflow, version, body, digest, origin)
ON CONFLICT (name) DO UPDATE SET workflow = excluded.workflow, version = excluded.version, body = excluded.body, digest = excluded.digest
WHERE c.origin = excluded.origin
RETURNING name

-- name: remove_composed
DELETE FROM holdfast.composed c USING unnest($1::text[], $2::text[]) u(name, origin) WHERE c.name = u.name AND c.origin = u.origin

-- name: add_composed_types
INSERT INTO holdfast.composed_types (namespace, type, name)
SELECT u.namespace, u.type, u.name FROM unnest($1::text[], $2::text[], $3::text[]) u(namespace, type, name)
ON CONFLICT (namespace, type, name) DO NOTHING

-- name: remove_composed_types
DELETE FROM holdfast.composed_types t USING unnest($1::text[]) u(name) WHERE t.name = u.name

-- name: composed_times
SELECT name, part, plan, cursor, next_at FROM holdfast.composed_times WHERE name = ANY($1::text[]) ORDER BY name, part

-- name: add_composed_times
INSERT INTO holdfast.composed_times (name, part, plan, cursor, next_at)
SELECT u.name, u.part, u.plan, u.cursor, u.next_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::float8[], $5::float8[]) u(name, part, plan, cursor, next_at)
ON CONFLICT (name, part) DO UPDATE SET plan = excluded.plan, cursor = excluded.cursor, next_at = excluded.next_at

-- name: move_composed_times
UPDATE holdfast.composed_times t SET cursor = u.cursor, next_at = u.next_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::float8[], $5::float8[], $6::float8[]) u(name, part, plan, before, cursor, next_at)
WHERE t.name = u.name AND t.part = u.part AND t.plan = u.plan AND t.cursor = u.before
RETURNING t.name, t.part

-- name: remove_composed_times
DELETE FROM holdfast.composed_times t USING unnest($1::text[], $2::text[]) u(name, part) WHERE t.name = u.name AND t.part = u.part

-- name: declared_composed
SELECT d.origin, d.digest, d.body, extract(epoch FROM d.first_seen)::float8 FROM holdfast.declared d
WHERE d.digest IN (SELECT jsonb_array_elements_text(n.offers::jsonb -> 'composed') FROM holdfast.nodes n
                   WHERE n.retired_at IS NULL AND n.lease_until > clock_timestamp())
ORDER BY d.origin, d.first_seen, d.digest LIMIT $1

-- name: declare_composed
INSERT INTO holdfast.declared (origin, digest, body, first_seen)
SELECT u.origin, u.digest, u.body, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) u(origin, digest, body, is_empty)
WHERE NOT u.is_empty OR EXISTS (SELECT FROM holdfast.composed c WHERE c.origin = u.origin)
ON CONFLICT (origin, digest) DO NOTHING
RETURNING origin, digest

-- One that exists is locked by this, so that nobody forgets it until the end of the transaction.
-- name: open_occasions
INSERT INTO holdfast.occasions AS o (id, namespace, trigger_name, value, digest, opened_at, ends_at)
SELECT u.id, u.namespace, u.trigger_name, u.value, u.digest, coalesce(u.at, n.now), coalesce(u.at, n.now) + u.within_s
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::float8[])
     u(id, namespace, trigger_name, value, digest, at, within_s)
CROSS JOIN (SELECT extract(epoch FROM pg_catalog.clock_timestamp())::float8 AS now OFFSET 0) n
ON CONFLICT (id) DO UPDATE SET note = o.note

-- name: occasions_of
SELECT n.now, {Occasion(o)} FROM holdfast.occasions o
CROSS JOIN (SELECT extract(epoch FROM pg_catalog.clock_timestamp())::float8 AS now OFFSET 0) n
WHERE o.id = ANY($1::text[])

-- name: collected_of
SELECT occasion, part, source, id, at FROM holdfast.collected WHERE occasion = ANY($1::text[])
ORDER BY occasion, part, at, source, id

-- An event is looked up by a range that only its key's index has in order, so that a plan made on an empty table uses it, too.
-- name: collected_data
SELECT c.occasion, c.part, c.source, c.id, c.at, e.data FROM holdfast.collected c
CROSS JOIN LATERAL (SELECT data FROM holdfast.events
                    WHERE namespace = c.namespace AND source = c.source AND id >= c.id AND id <= c.id
                    ORDER BY id LIMIT 1) e
WHERE c.occasion = ANY($1::text[])

-- name: add_collected
INSERT INTO holdfast.collected (occasion, part, source, id, namespace, at)
SELECT u.occasion, u.part, u.source, u.id, u.namespace, u.at
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::float8[]) u(occasion, part, source, id, namespace, at)
ON CONFLICT (occasion, part, source, id) DO NOTHING

-- name: remove_collected
DELETE FROM holdfast.collected c USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) u(occasion, part, source, id)
WHERE c.occasion = u.occasion AND c.part = u.part AND c.source = u.source AND c.id = u.id

-- name: move_occasions
UPDATE holdfast.occasions o SET state = u.state, digest = u.digest, ends_at = u.ends_at, note = u.note,
       ended_at = CASE WHEN u.state <> 'open' THEN extract(epoch FROM pg_catalog.clock_timestamp())::float8 END
FROM unnest($1::text[], $2::text[], $3::text[], $4::float8[], $5::text[]) u(id, state, digest, ends_at, note)
WHERE o.id = u.id AND o.state = 'open'

-- name: note_late
UPDATE holdfast.occasions o SET late = o.late + u.many FROM unnest($1::text[], $2::int[]) u(id, many) WHERE o.id = u.id

-- What there is to do: times of triggers that have come, occasions whose time is over, and when the next of both is due.
-- name: occasion_looks
WITH clock AS MATERIALIZED (SELECT extract(epoch FROM clock_timestamp())::float8 AS now)
(SELECT 'time' AS kind, name, part, next_at AS at FROM holdfast.composed_times
 WHERE next_at IS NOT NULL AND next_at <= (SELECT now FROM clock) ORDER BY next_at LIMIT $1)
UNION ALL
(SELECT 'over', id, '', ends_at FROM holdfast.occasions
 WHERE state = 'open' AND ends_at <= (SELECT now FROM clock) ORDER BY ends_at LIMIT $1)
UNION ALL
(SELECT 'next', '', '', next_at FROM holdfast.composed_times WHERE next_at IS NOT NULL ORDER BY next_at LIMIT 1)
UNION ALL
(SELECT 'next', '', '', ends_at FROM holdfast.occasions WHERE state = 'open' ORDER BY ends_at LIMIT 1)

-- Open occasions that were last judged by another version of their trigger.
-- name: stale_occasions
SELECT o.id FROM (SELECT id, trigger_name, digest, ends_at FROM holdfast.occasions WHERE state = 'open' ORDER BY ends_at OFFSET 0) o
CROSS JOIN LATERAL (SELECT digest FROM holdfast.composed WHERE name = o.trigger_name OFFSET 0) c
WHERE o.digest <> c.digest ORDER BY o.ends_at LIMIT $1

-- name: occasions
SELECT {Occasion} FROM holdfast.occasions
WHERE namespace = $1 AND opened_at < $2 AND ($3::text IS NULL OR trigger_name = $3) AND ($4::text IS NULL OR state = $4)
ORDER BY opened_at DESC, id LIMIT $5

-- name: old_collected
SELECT c.occasion, c.part, c.source, c.id
FROM (SELECT id, ended_at FROM holdfast.occasions WHERE state <> 'open' AND ended_at < $1 ORDER BY ended_at OFFSET 0) o
CROSS JOIN LATERAL (SELECT occasion, part, source, id FROM holdfast.collected WHERE occasion = o.id OFFSET 0) c
ORDER BY o.ended_at LIMIT $2

-- name: forget_collected
DELETE FROM holdfast.collected c USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) u(occasion, part, source, id)
WHERE c.occasion = u.occasion AND c.part = u.part AND c.source = u.source AND c.id = u.id
  AND EXISTS (SELECT FROM holdfast.occasions o WHERE o.id = u.occasion AND o.ended_at < $5)

-- name: old_occasions
SELECT o.id FROM holdfast.occasions o
WHERE o.state <> 'open' AND o.ended_at < $1 AND NOT EXISTS (SELECT FROM holdfast.collected c WHERE c.occasion = o.id)
ORDER BY o.ended_at LIMIT $2

-- name: forget_occasions
DELETE FROM holdfast.occasions o USING unnest($1::text[]) u(id)
WHERE o.id = u.id AND o.ended_at < $2 AND NOT EXISTS (SELECT FROM holdfast.collected c WHERE c.occasion = o.id)
