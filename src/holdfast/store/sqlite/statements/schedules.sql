-- Schedules: what is due, what becomes of it, and what operators and code change. The leader writes a schedule only with the
-- fence that it has read.

-- Everything that a pass of the leader wants to know: schedules that are due, schedules with a run that has ended, backfills,
-- and when the next schedule is due. Of the fires that have not ended, ?2 are looked at, beginning after the schedule ?1; the
-- last row says how many there were, and which schedule was the last.
-- name: schedule_looks
WITH opened AS MATERIALIZED (
    SELECT schedule, fate, run_id, counted FROM fires INDEXED BY fires_open WHERE ended = 0 AND schedule > ?1
    ORDER BY schedule, at, repeat LIMIT ?2)
SELECT kind, name, at FROM (SELECT 'due' AS kind, name, next_at AS at FROM schedules INDEXED BY schedules_due
               WHERE state = 'active' AND next_at <= (SELECT store_now()) ORDER BY next_at LIMIT ?3)
UNION ALL
SELECT 'ended', o.schedule, 0.0 FROM opened o LEFT JOIN runs r ON r.id = o.run_id
WHERE o.fate = 'started' AND (r.id IS NULL OR r.finished_at IS NOT NULL OR (+r.state = 'stuck' AND o.counted = 0))
UNION ALL
SELECT kind, id, at FROM (SELECT 'backfill' AS kind, id, 0.0 AS at FROM backfills INDEXED BY backfills_running WHERE state = 'running'
               ORDER BY created_at LIMIT 20)
UNION ALL
SELECT kind, name, at FROM (SELECT 'next' AS kind, '' AS name, next_at AS at FROM schedules INDEXED BY schedules_due WHERE state = 'active' ORDER BY next_at LIMIT 1)
UNION ALL
SELECT 'opened', coalesce(max(schedule), ''), count(*) + 0.0 FROM opened

-- name: schedules_named
SELECT {Schedule(s)} FROM json_each(?1) u CROSS JOIN schedules s ON s.name = u.value

-- name: schedule
SELECT {Schedule} FROM schedules WHERE name = ?1

-- SQLite has only one write transaction at a time, so the row needs no lock.
-- name: lock_schedule
SELECT {Schedule} FROM schedules WHERE name = ?1

-- name: schedules
SELECT {Schedule} FROM schedules WHERE name > ?1 AND (?2 IS NULL OR +namespace = ?2) ORDER BY name LIMIT ?3

-- name: open_fires
SELECT f.schedule, f.at, f.repeat, f.fate, f.run_id, f.backfill, f.counted, r.state
FROM json_each(?1) u CROSS JOIN fires f INDEXED BY fires_open ON f.schedule = u.value AND f.ended = 0 LEFT JOIN runs r ON r.id = f.run_id
ORDER BY f.schedule, f.at, f.repeat LIMIT ?2

-- name: move_schedules
UPDATE schedules SET cursor = ?3, next_at = ?4, state = ?5, note = ?6, actor = ?7, failures = ?8, started = ?9,
                     last_run = ?10, last_at = ?11, tzdata = ?12, fence = fence + 1
WHERE name = ?1 AND fence = ?2
RETURNING name

-- name: add_fires
INSERT INTO fires (schedule, at, repeat, fate, run_id, why, backfill, last_at, times, ended, decided_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, store_now())
ON CONFLICT (schedule, at, repeat) DO NOTHING

-- name: change_fires
UPDATE fires SET fate = ?4, run_id = coalesce(?5, run_id), why = CASE WHEN ?6 = '' THEN why ELSE ?6 END, ended = ?7, counted = ?8,
                 decided_at = CASE WHEN fate = 'buffered' THEN store_now() ELSE decided_at END
WHERE schedule = ?1 AND at = ?2 AND repeat = ?3 AND +ended = 0

-- name: add_schedules
INSERT INTO schedules (name, namespace, origin, workflow, version, input, digest, priority, tags, timeout_s, plan, actor,
                       cursor, next_at, tzdata, state, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, store_now())
ON CONFLICT (name) DO NOTHING
RETURNING name

-- The line of a schedule has changed. Its fates, and a pause, stay.
-- name: change_schedules
UPDATE schedules SET origin = ?3, workflow = ?4, version = ?5, input = ?6, digest = ?7, priority = ?8, tags = ?9,
                     timeout_s = ?10, plan = ?11, cursor = ?12, next_at = ?13, tzdata = ?14, state = ?15, fence = fence + 1
WHERE name = ?1 AND fence = ?2
RETURNING name

-- name: remove_schedules
DELETE FROM schedules WHERE name = ?1 AND fence = ?2
RETURNING name

-- name: fires
SELECT {Fire} FROM fires WHERE schedule = ?1 AND at < ?2 ORDER BY at DESC, repeat DESC LIMIT ?3

-- What became of these times, and of their runs.
-- name: fires_at
SELECT f.schedule, f.at, f.repeat, f.fate, f.run_id, f.backfill, f.counted, r.state
FROM json_each(?2) u CROSS JOIN fires f ON f.schedule = ?1 AND f.at = u.value LEFT JOIN runs r ON r.id = f.run_id
ORDER BY f.at, f.repeat

-- The set of an application that never had schedules and still has none (?5) is not worth a row.
-- name: declare_sets
INSERT INTO declared (origin, digest, body, first_seen)
SELECT ?1, ?2, ?3, store_now() WHERE NOT ?4 OR EXISTS (SELECT 1 FROM declared WHERE origin = ?1)
ON CONFLICT (origin, digest) DO NOTHING

-- name: declared_sets
SELECT d.origin, d.digest, d.body, d.first_seen FROM declared d
WHERE d.digest IN (SELECT w.value FROM nodes n INDEXED BY nodes_live, json_each(n.offers, '$.schedules') w
                   WHERE n.retired_at IS NULL AND n.lease_until > (SELECT store_now()))
ORDER BY d.origin, d.first_seen, d.digest LIMIT ?1

-- name: schedules_of
SELECT {Schedule} FROM schedules INDEXED BY schedules_origin WHERE origin = ?1 ORDER BY name LIMIT ?2

-- name: lock_schedules_of
SELECT {Schedule} FROM schedules INDEXED BY schedules_origin WHERE origin = ?1 ORDER BY name LIMIT ?2

-- Active schedules whose workflow no live node has loaded.
-- name: gone_schedules
SELECT name, workflow, version FROM schedules s INDEXED BY schedules_due
WHERE state = 'active'
  AND NOT EXISTS (SELECT 1 FROM nodes n INDEXED BY nodes_live, json_each(n.offers, '$.workflows') w
                  WHERE n.retired_at IS NULL AND n.lease_until > (SELECT store_now())
                    AND w.value = s.workflow || '@' || s.version)
ORDER BY next_at LIMIT ?1

-- name: other_tzdata
SELECT {Schedule} FROM schedules INDEXED BY schedules_due WHERE state = 'active' AND +tzdata < ?1 ORDER BY next_at LIMIT ?2

-- name: add_backfill
INSERT INTO backfills (id, schedule, from_at, to_at, newest_first, most, again, actor, note, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, store_now())
ON CONFLICT (id) DO NOTHING

-- name: backfill
SELECT {Backfill} FROM backfills WHERE id = ?1

-- name: lock_backfill
SELECT {Backfill} FROM backfills WHERE id = ?1

-- name: backfills
SELECT {Backfill} FROM backfills INDEXED BY backfills_of WHERE schedule = ?1 ORDER BY created_at DESC LIMIT ?2

-- name: move_backfill
UPDATE backfills SET cursor = ?3, started = ?4, passed = ?5, state = ?6, fence = fence + 1,
                     ended_at = CASE WHEN ?6 <> 'running' THEN store_now() END
WHERE id = ?1 AND fence = ?2 AND state = 'running'
RETURNING id

-- name: old_fires
SELECT schedule, at, repeat FROM fires INDEXED BY fires_decided WHERE ended = 1 AND decided_at < ?1 ORDER BY decided_at LIMIT ?2

-- name: forget_fires
DELETE FROM fires WHERE schedule = ?1 AND at = ?2 AND repeat = ?3 AND +decided_at < ?4

-- name: old_backfills
SELECT id FROM backfills WHERE ended_at < ?1 ORDER BY created_at LIMIT ?2

-- name: forget_backfills
DELETE FROM backfills WHERE id = ?1 AND ended_at < ?2

-- name: old_sets
SELECT d.origin, d.digest FROM declared d
WHERE d.first_seen < ?1
  AND NOT EXISTS (SELECT 1 FROM nodes n, json_each(n.offers, '$.schedules') w WHERE n.retired_at IS NULL AND w.value = d.digest)
  AND NOT EXISTS (SELECT 1 FROM nodes n, json_each(n.offers, '$.triggers') w WHERE n.retired_at IS NULL AND w.value = d.digest)
  AND NOT EXISTS (SELECT 1 FROM nodes n, json_each(n.offers, '$.composed') w WHERE n.retired_at IS NULL AND w.value = d.digest)
ORDER BY d.first_seen LIMIT ?2

-- name: forget_sets
DELETE FROM declared WHERE origin = ?1 AND digest = ?2 AND first_seen < ?3
