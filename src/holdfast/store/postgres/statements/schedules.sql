-- Schedules: what is due, what becomes of it, and what operators and code change. The leader writes a schedule only with the
-- fence that it has read.

-- Everything that a pass of the leader wants to know: schedules that are due, schedules with a run that has ended, backfills,
-- and when the next schedule is due. Of the fires that have not ended, $2 are looked at, beginning after the schedule $1; the
-- last row says how many there were, and which schedule was the last.
-- name: schedule_looks
WITH opened AS MATERIALIZED (
    SELECT schedule, fate, run_id, counted FROM holdfast.fires WHERE NOT ended AND schedule > $1
    ORDER BY schedule, at, repeat LIMIT $2)
(SELECT 'due' AS kind, name, extract(epoch FROM next_at)::float8 AS at FROM holdfast.schedules
 WHERE state = 'active' AND next_at <= clock_timestamp() ORDER BY next_at LIMIT $3)
UNION ALL
SELECT 'ended', o.schedule, 0.0
FROM opened o LEFT JOIN LATERAL (SELECT id, state, finished_at FROM holdfast.runs WHERE id = o.run_id OFFSET 0) r ON true
WHERE o.fate = 'started' AND (r.id IS NULL OR r.finished_at IS NOT NULL OR (r.state = 'stuck' AND NOT o.counted))
UNION ALL
(SELECT 'backfill', id, 0.0 FROM holdfast.backfills WHERE state = 'running' ORDER BY created_at LIMIT 20)
UNION ALL
(SELECT 'next', '', extract(epoch FROM next_at)::float8 FROM holdfast.schedules WHERE state = 'active' ORDER BY next_at LIMIT 1)
UNION ALL
SELECT 'opened', coalesce(max(schedule), ''), count(*)::float8 FROM opened

-- name: schedules_named
SELECT {Schedule} FROM holdfast.schedules WHERE name = ANY($1::text[])

-- name: schedule
SELECT {Schedule} FROM holdfast.schedules WHERE name = $1

-- name: lock_schedule
SELECT {Schedule} FROM holdfast.schedules WHERE name = $1 FOR UPDATE

-- name: schedules
SELECT {Schedule} FROM holdfast.schedules WHERE name > $1 AND ($2::text IS NULL OR namespace = $2) ORDER BY name LIMIT $3

-- name: open_fires
SELECT f.schedule, f.at, f.repeat, f.fate, f.run_id, f.backfill, f.counted, r.state
FROM (SELECT f.schedule, f.at, f.repeat, f.fate, f.run_id, f.backfill, f.counted FROM unnest($1::text[]) u(name)
      CROSS JOIN LATERAL (SELECT schedule, at, repeat, fate, run_id, backfill, counted FROM holdfast.fires
                          WHERE schedule = u.name AND NOT ended OFFSET 0) f
      ORDER BY f.schedule, f.at, f.repeat LIMIT $2) f
LEFT JOIN LATERAL (SELECT state FROM holdfast.runs WHERE id = f.run_id OFFSET 0) r ON true
ORDER BY f.schedule, f.at, f.repeat

-- name: move_schedules
UPDATE holdfast.schedules s SET cursor = u.cursor, next_at = u.next_at, state = u.state, note = u.note, actor = u.actor,
    failures = u.failures, started = u.started, last_run = u.last_run, last_at = u.last_at, tzdata = u.tzdata,
    fence = s.fence + 1
FROM unnest($1::text[], $2::int[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::int[],
            $9::int[], $10::text[], $11::timestamptz[], $12::text[])
     u(name, fence, cursor, next_at, state, note, actor, failures, started, last_run, last_at, tzdata)
WHERE s.name = u.name AND s.fence = u.fence
RETURNING s.name

-- name: add_fires
INSERT INTO holdfast.fires (schedule, at, repeat, fate, run_id, why, backfill, last_at, times, ended, decided_at)
SELECT u.schedule, u.at, u.repeat, u.fate, u.run_id, u.why, u.backfill, u.last_at, u.times, u.ended, clock_timestamp()
FROM unnest($1::text[], $2::timestamptz[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::timestamptz[],
            $9::int[], $10::boolean[]) u(schedule, at, repeat, fate, run_id, why, backfill, last_at, times, ended)
ON CONFLICT (schedule, at, repeat) DO NOTHING

-- name: change_fires
UPDATE holdfast.fires f SET fate = u.fate, run_id = coalesce(u.run_id, f.run_id), ended = u.ended, counted = u.counted,
    why = CASE WHEN u.why = '' THEN f.why ELSE u.why END,
    decided_at = CASE WHEN f.fate = 'buffered' THEN clock_timestamp() ELSE f.decided_at END
FROM unnest($1::text[], $2::timestamptz[], $3::int[], $4::text[], $5::text[], $6::text[], $7::boolean[], $8::boolean[])
     u(schedule, at, repeat, fate, run_id, why, ended, counted)
WHERE f.schedule = u.schedule AND f.at = u.at AND f.repeat = u.repeat AND NOT f.ended

-- name: add_schedules
INSERT INTO holdfast.schedules (name, namespace, origin, workflow, version, input, digest, priority, tags, timeout_s, plan,
                                actor, cursor, next_at, tzdata, state, created_at)
SELECT u.name, u.namespace, u.origin, u.workflow, u.version, u.input, u.digest, u.priority, u.tags, u.timeout_s, u.plan,
       u.actor, u.cursor, u.next_at, u.tzdata, u.state, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::int[], $9::text[],
            $10::float8[], $11::text[], $12::text[], $13::timestamptz[], $14::timestamptz[], $15::text[], $16::text[])
     u(name, namespace, origin, workflow, version, input, digest, priority, tags, timeout_s, plan, actor, cursor, next_at,
       tzdata, state)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- The line of a schedule has changed. Its fates, and a pause, stay.
-- name: change_schedules
UPDATE holdfast.schedules s SET origin = u.origin, workflow = u.workflow, version = u.version, input = u.input,
    digest = u.digest, priority = u.priority, tags = u.tags, timeout_s = u.timeout_s, plan = u.plan, cursor = u.cursor,
    next_at = u.next_at, tzdata = u.tzdata, state = u.state, fence = s.fence + 1
FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::int[], $9::text[],
            $10::float8[], $11::text[], $12::timestamptz[], $13::timestamptz[], $14::text[], $15::text[])
     u(name, fence, origin, workflow, version, input, digest, priority, tags, timeout_s, plan, cursor, next_at, tzdata, state)
WHERE s.name = u.name AND s.fence = u.fence
RETURNING s.name

-- name: remove_schedules
DELETE FROM holdfast.schedules s USING unnest($1::text[], $2::int[]) u(name, fence)
WHERE s.name = u.name AND s.fence = u.fence
RETURNING s.name

-- name: fires
SELECT {Fire} FROM holdfast.fires WHERE schedule = $1 AND at < $2 ORDER BY at DESC, repeat DESC LIMIT $3

-- What became of these times, and of their runs.
-- name: fires_at
SELECT f.schedule, f.at, f.repeat, f.fate, f.run_id, f.backfill, f.counted, r.state
FROM unnest($2::timestamptz[]) u(at)
CROSS JOIN LATERAL (SELECT schedule, at, repeat, fate, run_id, backfill, counted FROM holdfast.fires
                    WHERE schedule = $1 AND at = u.at OFFSET 0) f
LEFT JOIN LATERAL (SELECT state FROM holdfast.runs WHERE id = f.run_id OFFSET 0) r ON true
ORDER BY f.at, f.repeat

-- The set of an application that never had schedules and still has none ($4) is not worth a row.
-- name: declare_sets
INSERT INTO holdfast.declared (origin, digest, body, first_seen)
SELECT u.origin, u.digest, u.body, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) u(origin, digest, body, is_empty)
WHERE NOT u.is_empty OR EXISTS (SELECT FROM holdfast.declared d WHERE d.origin = u.origin)
ON CONFLICT (origin, digest) DO NOTHING

-- name: declared_sets
SELECT d.origin, d.digest, d.body, extract(epoch FROM d.first_seen)::float8 FROM holdfast.declared d
WHERE d.digest IN (SELECT jsonb_array_elements_text(n.offers::jsonb -> 'schedules') FROM holdfast.nodes n
                   WHERE n.retired_at IS NULL AND n.lease_until > clock_timestamp())
ORDER BY d.origin, d.first_seen, d.digest LIMIT $1

-- name: schedules_of
SELECT {Schedule} FROM holdfast.schedules WHERE origin = $1 ORDER BY name LIMIT $2

-- name: lock_schedules_of
SELECT {Schedule} FROM holdfast.schedules WHERE origin = $1 ORDER BY name LIMIT $2 FOR UPDATE

-- Active schedules whose workflow no live node has loaded.
-- name: gone_schedules
SELECT name, workflow, version FROM holdfast.schedules s
WHERE state = 'active'
  AND NOT EXISTS (SELECT FROM holdfast.nodes n WHERE n.retired_at IS NULL AND n.lease_until > clock_timestamp()
                  AND n.offers::jsonb -> 'workflows' @> to_jsonb(s.workflow || '@' || s.version))
ORDER BY next_at LIMIT $1

-- name: other_tzdata
SELECT {Schedule} FROM holdfast.schedules WHERE state = 'active' AND tzdata COLLATE "C" < $1 ORDER BY next_at LIMIT $2

-- name: add_backfill
INSERT INTO holdfast.backfills (id, schedule, from_at, to_at, newest_first, most, again, actor, note, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp())
ON CONFLICT (id) DO NOTHING

-- name: backfill
SELECT {Backfill} FROM holdfast.backfills WHERE id = $1

-- name: lock_backfill
SELECT {Backfill} FROM holdfast.backfills WHERE id = $1 FOR UPDATE

-- name: backfills
SELECT {Backfill} FROM holdfast.backfills WHERE schedule = $1 ORDER BY created_at DESC LIMIT $2

-- name: move_backfill
UPDATE holdfast.backfills SET cursor = $3, started = $4, passed = $5, state = $6, fence = fence + 1,
    ended_at = CASE WHEN $6::text <> 'running' THEN clock_timestamp() END
WHERE id = $1 AND fence = $2 AND state = 'running'
RETURNING id

-- name: old_fires
SELECT schedule, at, repeat FROM holdfast.fires WHERE ended AND decided_at < $1 ORDER BY decided_at LIMIT $2

-- name: forget_fires
DELETE FROM holdfast.fires f USING unnest($1::text[], $2::timestamptz[], $3::int[]) u(schedule, at, repeat)
WHERE f.schedule = u.schedule AND f.at = u.at AND f.repeat = u.repeat AND f.decided_at < $4

-- name: old_backfills
SELECT id FROM holdfast.backfills WHERE ended_at < $1 ORDER BY created_at LIMIT $2

-- name: forget_backfills
DELETE FROM holdfast.backfills b USING unnest($1::text[]) u(id) WHERE b.id = u.id AND b.ended_at < $2

-- name: old_sets
SELECT d.origin, d.digest FROM holdfast.declared d
WHERE d.first_seen < $1 AND NOT EXISTS (SELECT FROM holdfast.nodes n WHERE n.retired_at IS NULL
                                        AND (n.offers::jsonb -> 'schedules' @> to_jsonb(d.digest)
                                             OR n.offers::jsonb -> 'triggers' @> to_jsonb(d.digest)
                                             OR n.offers::jsonb -> 'composed' @> to_jsonb(d.digest)))
ORDER BY d.first_seen LIMIT $2

-- name: forget_sets
DELETE FROM holdfast.declared d USING unnest($1::text[], $2::text[]) u(origin, digest)
WHERE d.origin = u.origin AND d.digest = u.digest AND d.first_seen < $3
