-- Queues, fair keys and limits, and the walk: how a claim goes from queue to queue (see walk.py).

-- The queues of a lane and priority that have something ready, from one after ?3 up to ?4. The next queue is one look into the
-- index, whatever stands in between.
-- name: step_queues
WITH RECURSIVE turn (queue, k) AS (
    SELECT (SELECT s.queue FROM steps s INDEXED BY steps_ready
            WHERE s.state = 'ready' AND s.lane = ?1 AND s.priority = ?2 AND s.queue > ?3 AND s.queue <= ?4
            ORDER BY s.queue LIMIT 1), 1
    UNION ALL
    SELECT (SELECT s.queue FROM steps s INDEXED BY steps_ready
            WHERE s.state = 'ready' AND s.lane = ?1 AND s.priority = ?2 AND s.queue > turn.queue AND s.queue <= ?4
            ORDER BY s.queue LIMIT 1), turn.k + 1
    FROM turn WHERE turn.queue IS NOT NULL AND turn.k < ?5)
SELECT ?1, turn.queue, coalesce(f.weight, 1), q.limits, q.rates
FROM turn LEFT JOIN queues q ON q.id = turn.queue LEFT JOIN fairs f ON f.name = q.fair
WHERE turn.queue IS NOT NULL

-- The same for a node that works only on the runs ?6: it looks at their steps.
-- name: step_queues_of
SELECT ?1, d.queue, coalesce(f.weight, 1), q.limits, q.rates
FROM (SELECT DISTINCT s.queue FROM json_each(?6) u CROSS JOIN steps s INDEXED BY sqlite_autoindex_steps_1 ON s.run_id = u.value
      WHERE s.state = 'ready' AND s.lane = ?1 AND s.priority = ?2 AND s.queue > ?3 AND s.queue <= ?4) d
LEFT JOIN queues q ON q.id = d.queue LEFT JOIN fairs f ON f.name = q.fair
ORDER BY d.queue LIMIT ?5

-- name: due_in_queue
SELECT s.ready_at, s.run_id, s.n, s.fence, s.losses
FROM steps s INDEXED BY steps_ready CROSS JOIN runs r ON r.id = s.run_id
WHERE s.state = 'ready' AND s.lane = ?1 AND s.priority = ?2 AND s.queue = ?3 AND s.ready_at <= ?4 AND s.losses < ?5 AND {goes_on(r)}
ORDER BY s.ready_at LIMIT ?6

-- name: due_in_queue_of
SELECT s.ready_at, s.run_id, s.n, s.fence, s.losses
FROM json_each(?7) u CROSS JOIN runs r ON r.id = u.value CROSS JOIN steps s INDEXED BY sqlite_autoindex_steps_1 ON s.run_id = r.id
WHERE s.state = 'ready' AND s.lane = ?1 AND s.priority = ?2 AND s.queue = ?3 AND s.ready_at <= ?4 AND s.losses < ?5 AND {goes_on(r)}
ORDER BY s.ready_at LIMIT ?6

-- name: next_run_priority
SELECT priority FROM runs INDEXED BY runs_pending
WHERE state = 'pending' AND workflow = ?1 AND version = ?2 AND priority < ?3 ORDER BY priority DESC LIMIT 1

-- name: run_queues
WITH RECURSIVE turn (queue, k) AS (
    SELECT (SELECT r.queue FROM runs r INDEXED BY runs_pending
            WHERE r.state = 'pending' AND r.workflow = ?2 AND r.version = ?3 AND r.priority = ?4 AND r.queue > ?5 AND r.queue <= ?6
            ORDER BY r.queue LIMIT 1), 1
    UNION ALL
    SELECT (SELECT r.queue FROM runs r INDEXED BY runs_pending
            WHERE r.state = 'pending' AND r.workflow = ?2 AND r.version = ?3 AND r.priority = ?4 AND r.queue > turn.queue AND r.queue <= ?6
            ORDER BY r.queue LIMIT 1), turn.k + 1
    FROM turn WHERE turn.queue IS NOT NULL AND turn.k < ?7)
SELECT ?1, turn.queue, coalesce(f.weight, 1), q.limits, q.rates
FROM turn LEFT JOIN queues q ON q.id = turn.queue LEFT JOIN fairs f ON f.name = q.fair
WHERE turn.queue IS NOT NULL

-- name: run_queues_of
SELECT ?1, d.queue, coalesce(f.weight, 1), q.limits, q.rates
FROM (SELECT DISTINCT r.queue FROM json_each(?8) u CROSS JOIN runs r ON r.id = u.value
      WHERE +r.state = 'pending' AND r.workflow = ?2 AND r.version = ?3 AND r.priority = ?4 AND r.queue > ?5 AND r.queue <= ?6) d
LEFT JOIN queues q ON q.id = d.queue LEFT JOIN fairs f ON f.name = q.fair
ORDER BY d.queue LIMIT ?7

-- name: pending_in_queue
SELECT created_at, id FROM runs INDEXED BY runs_pending
WHERE state = 'pending' AND workflow = ?1 AND version = ?2 AND priority = ?3 AND queue = ?4 AND created_at <= ?5
ORDER BY created_at LIMIT ?6

-- name: pending_in_queue_of
SELECT r.created_at, r.id FROM json_each(?7) u CROSS JOIN runs r ON r.id = u.value
WHERE +r.state = 'pending' AND r.workflow = ?1 AND r.version = ?2 AND r.priority = ?3 AND r.queue = ?4 AND r.created_at <= ?5
ORDER BY r.created_at LIMIT ?6

-- name: take_runs
UPDATE runs SET state = 'running', owner = ?1, fence = fence + 1, started_at = coalesce(started_at, store_now())
WHERE id = ?2 AND +state = 'pending' AND {is_member(?1)}
RETURNING {Run}

-- Nobody else writes, so nobody waits.
-- name: wait_for_limits
SELECT value FROM json_each(?1)

-- How much of these limits is in use: the weight of the steps that run under each, and of the runs that have begun and not
-- ended.
-- name: limit_rooms
SELECT l.id, l.kind, l.most, l.per_s, l.burst, l.tat, iif(l.kind = 'limit', {used_of(l)}, 0), store_now(), l.adaptive AND NOT l.is_set,
       l.saved_for, l.saved_until - store_now(), l.rests_until - store_now()
FROM json_each(?1) u CROSS JOIN limits l ON l.id = u.value

-- Most limits are of steps that have one alone. So the indexes of the others are looked into only if there is anything in them
-- at all, which is asked once.
-- fragment: used_of(l)
(coalesce((SELECT sum(coalesce(s.weight_a, 1)) FROM steps s INDEXED BY steps_in_a WHERE s.limit_a = {l}.id AND s.finished_at IS NULL AND s.state = 'running'), 0)
 + CASE WHEN (SELECT EXISTS (SELECT 1 FROM steps INDEXED BY steps_in_b WHERE limit_b IS NOT NULL AND finished_at IS NULL)) THEN
       coalesce((SELECT sum(coalesce(s.weight_b, 1)) FROM steps s INDEXED BY steps_in_b WHERE s.limit_b = {l}.id AND s.finished_at IS NULL AND s.state = 'running'), 0) ELSE 0 END
 + CASE WHEN (SELECT EXISTS (SELECT 1 FROM steps INDEXED BY steps_in_c WHERE limit_c IS NOT NULL AND finished_at IS NULL)) THEN
       coalesce((SELECT sum(coalesce(s.weight_c, 1)) FROM steps s INDEXED BY steps_in_c WHERE s.limit_c = {l}.id AND s.finished_at IS NULL AND s.state = 'running'), 0) ELSE 0 END
 + CASE WHEN (SELECT EXISTS (SELECT 1 FROM runs INDEXED BY runs_in_a WHERE limit_a IS NOT NULL AND finished_at IS NULL)) THEN
       coalesce((SELECT sum(coalesce(r.weight_a, 1)) FROM runs r INDEXED BY runs_in_a WHERE r.limit_a = {l}.id AND {occupies(r)}), 0) ELSE 0 END
 + CASE WHEN (SELECT EXISTS (SELECT 1 FROM runs INDEXED BY runs_in_b WHERE limit_b IS NOT NULL AND finished_at IS NULL)) THEN
       coalesce((SELECT sum(coalesce(r.weight_b, 1)) FROM runs r INDEXED BY runs_in_b WHERE r.limit_b = {l}.id AND {occupies(r)}), 0) ELSE 0 END
 + CASE WHEN (SELECT EXISTS (SELECT 1 FROM runs INDEXED BY runs_in_c WHERE limit_c IS NOT NULL AND finished_at IS NULL)) THEN
       coalesce((SELECT sum(coalesce(r.weight_c, 1)) FROM runs r INDEXED BY runs_in_c WHERE r.limit_c = {l}.id AND {occupies(r)}), 0) ELSE 0 END)

-- True for a run that has begun and not ended. One that was held before it began has no slot.
-- fragment: occupies(r)
({r}.finished_at IS NULL AND {r}.state IN ('running', 'undoing', 'stuck', 'held') AND {r}.resume IS NOT 'pending')

-- name: spend_tokens
UPDATE limits SET tat = max(tat, store_now()) + ?2 * per_s / most WHERE id = ?1 AND most > 0

-- True if something in this queue could have begun by ?4.
-- name: steps_wait_long
SELECT 1 FROM steps s INDEXED BY steps_ready CROSS JOIN runs r ON r.id = s.run_id
WHERE s.state = 'ready' AND s.lane = ?1 AND s.priority = ?2 AND s.queue = ?3 AND s.ready_at <= ?4 AND {goes_on(r)} LIMIT 1

-- name: runs_wait_long
SELECT 1 FROM runs INDEXED BY runs_pending
WHERE state = 'pending' AND workflow = ?1 AND version = ?2 AND priority = ?3 AND queue = ?4 AND created_at <= ?5 LIMIT 1

-- Writes for which queue the slots of limits are saved up, and for how long; and for how long none are.
-- name: save_slots
UPDATE limits SET saved_for = ?2, saved_until = store_now() + ?3, rests_until = store_now() + ?4
WHERE id IN (SELECT value FROM json_each(?1))

-- name: queue_numbers
SELECT id, key, limits FROM queues WHERE key = ?1

-- name: make_queues
INSERT INTO queues (key, fair, limits, rates, created_at) VALUES (?1, ?2, ?3, ?4, store_now()) ON CONFLICT (key) DO NOTHING

-- name: limits_named
SELECT id, name, declared, per_s, burst, iif(adaptive, least, NULL) FROM limits WHERE name = ?1

-- What the code says about limits. The number that an operator has set stays in force, and so does one that the leader has
-- moved, as far as the code allows it. ?6 is the floor of an adaptive one, and ?7 the number that a new one begins with.
-- name: declare_limits
INSERT INTO limits (name, kind, declared, most, per_s, burst, changed_at, adaptive, least)
VALUES (?1, ?2, ?3, ?7, ?4, ?5, store_now(), ?6 IS NOT NULL, coalesce(?6, 1))
ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, declared = excluded.declared, per_s = excluded.per_s, burst = excluded.burst,
    changed_at = excluded.changed_at, adaptive = excluded.adaptive, least = excluded.least,
    most = CASE WHEN is_set THEN most WHEN adaptive AND excluded.adaptive THEN max(excluded.least, min(most, excluded.declared))
           ELSE excluded.most END,
    tat = coalesce(min(tat, store_now() + excluded.burst * excluded.per_s / excluded.declared), tat)

-- fragment: saved_for(l)
iif({l}.saved_until > store_now(), {l}.saved_for, NULL)

-- Limits and rates by name, with how much of each is in use.
-- name: limits
SELECT l.id, l.name, l.kind, l.declared, l.most, l.per_s, l.burst, l.tat, l.is_set, l.actor, l.note,
       iif(l.kind = 'limit', {used_of(l)}, 0), store_now(), l.adaptive, l.least, l.moved, l.moved_at, {saved_for(l)}
FROM limits l WHERE l.name > ?2 AND (?1 IS NULL OR {namespace_of(l.name)} = ?1) ORDER BY l.name LIMIT ?3

-- name: limit
SELECT l.id, l.name, l.kind, l.declared, l.most, l.per_s, l.burst, l.tat, l.is_set, l.actor, l.note,
       iif(l.kind = 'limit', {used_of(l)}, 0), store_now(), l.adaptive, l.least, l.moved, l.moved_at, {saved_for(l)}
FROM limits l WHERE l.name = ?1

-- name: limits_of_queue
SELECT l.id, l.name, l.kind, l.declared, l.most, l.per_s, l.burst, l.tat, l.is_set, l.actor, l.note,
       iif(l.kind = 'limit', {used_of(l)}, 0), store_now(), l.adaptive, l.least, l.moved, l.moved_at, {saved_for(l)},
       coalesce((SELECT w.value ->> 1 FROM json_each(q.limits) w WHERE w.value ->> 0 = l.id), 1)
FROM queues q CROSS JOIN (SELECT 0) CROSS JOIN limits l ON l.id IN (SELECT e.value ->> 0 FROM json_each(q.limits) e UNION ALL SELECT e.value FROM json_each(q.rates) e)
WHERE q.id = ?1 ORDER BY l.kind, l.name

-- Steps that run and runs that have begun under a limit, the oldest first.
-- name: limit_holders
SELECT run_id, n, name, since, weight FROM (
    SELECT s.run_id, s.n, s.name, s.started_at AS since, coalesce(s.weight_a, 1) AS weight FROM steps s WHERE s.limit_a = ?1 AND s.finished_at IS NULL AND s.state = 'running'
    UNION ALL SELECT s.run_id, s.n, s.name, s.started_at AS since, coalesce(s.weight_b, 1) AS weight FROM steps s WHERE s.limit_b = ?1 AND s.finished_at IS NULL AND s.state = 'running'
    UNION ALL SELECT s.run_id, s.n, s.name, s.started_at AS since, coalesce(s.weight_c, 1) AS weight FROM steps s WHERE s.limit_c = ?1 AND s.finished_at IS NULL AND s.state = 'running'
    UNION ALL SELECT r.id, 0, r.workflow, r.started_at, coalesce(r.weight_a, 1) FROM runs r WHERE r.limit_a = ?1 AND {occupies(r)}
    UNION ALL SELECT r.id, 0, r.workflow, r.started_at, coalesce(r.weight_b, 1) FROM runs r WHERE r.limit_b = ?1 AND {occupies(r)}
    UNION ALL SELECT r.id, 0, r.workflow, r.started_at, coalesce(r.weight_c, 1) FROM runs r WHERE r.limit_c = ?1 AND {occupies(r)}) u ORDER BY since, run_id, n LIMIT ?2

-- Steps that are ready and runs that are pending under a limit, the oldest first.
-- name: limit_waiters
SELECT run_id, n, name, since, weight FROM (
    SELECT s.run_id, s.n, s.name, s.ready_at AS since, coalesce(s.weight_a, 1) AS weight FROM steps s WHERE s.limit_a = ?1 AND s.finished_at IS NULL AND s.state = 'ready'
    UNION ALL SELECT s.run_id, s.n, s.name, s.ready_at AS since, coalesce(s.weight_b, 1) AS weight FROM steps s WHERE s.limit_b = ?1 AND s.finished_at IS NULL AND s.state = 'ready'
    UNION ALL SELECT s.run_id, s.n, s.name, s.ready_at AS since, coalesce(s.weight_c, 1) AS weight FROM steps s WHERE s.limit_c = ?1 AND s.finished_at IS NULL AND s.state = 'ready'
    UNION ALL SELECT r.id, 0, r.workflow, r.created_at, coalesce(r.weight_a, 1) FROM runs r WHERE r.limit_a = ?1 AND r.finished_at IS NULL AND r.state = 'pending'
    UNION ALL SELECT r.id, 0, r.workflow, r.created_at, coalesce(r.weight_b, 1) FROM runs r WHERE r.limit_b = ?1 AND r.finished_at IS NULL AND r.state = 'pending'
    UNION ALL SELECT r.id, 0, r.workflow, r.created_at, coalesce(r.weight_c, 1) FROM runs r WHERE r.limit_c = ?1 AND r.finished_at IS NULL AND r.state = 'pending') u ORDER BY since, run_id, n LIMIT ?2

-- Adds how attempts under an adaptive limit went: (id, ok, failed, seconds). ?5 is the namespace that it must be in, if any.
-- name: observe_limits
UPDATE limits SET ok = ok + ?2, failed = failed + ?3, seconds = seconds + ?4, reported_at = store_now()
WHERE id = ?1 AND adaptive AND (?5 IS NULL OR {namespace_of(name)} = ?5)

-- Adaptive limits that agents have reported about within the last ?1 seconds. One that an operator has set stays.
-- name: adaptive_limits
SELECT l.id, l.name, l.most, l.least, l.declared, l.usual_s, l.ok, l.failed, l.seconds, {used_of(l)}
FROM limits l INDEXED BY limits_reported WHERE l.adaptive AND l.reported_at > store_now() - ?1 AND NOT l.is_set ORDER BY l.reported_at LIMIT ?2

-- Moves the number of an adaptive limit from ?2, if neither the code nor an operator has changed it since.
-- name: move_limit
UPDATE limits SET most = ?5, usual_s = ?6, moved = coalesce(?7, moved), moved_at = iif(?7 IS NULL, moved_at, store_now())
WHERE id = ?1 AND most = ?2 AND least = ?3 AND declared = ?4 AND adaptive AND NOT is_set

-- Sets the number of a limit. Without one, that of the code counts again, and an adaptive one goes on from where it is. What
-- was spent under the old rate makes nobody wait longer than a full burst of the new one would.
-- name: set_limit
UPDATE limits SET tat = coalesce(min(tat, store_now() + burst * per_s / nullif(coalesce(?2, declared), 0)), tat),
    most = coalesce(?2, iif(adaptive, max(least, min(most, declared)), declared)), is_set = ?2 IS NOT NULL, actor = ?3, note = ?4,
    changed_at = store_now()
WHERE name = ?1

-- Puts a run that was just claimed into its queue. It has done nothing yet.
-- name: queue_run
UPDATE runs SET state = 'pending', owner = NULL, fence = fence + 1, started_at = NULL, under = ?3, queue = ?4,
    limit_a = ?5, limit_b = ?6, limit_c = ?7, weight_a = ?8, weight_b = ?9, weight_c = ?10
WHERE id = ?1 AND fence = ?2 AND +state = 'running' AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.run_id = ?1)

-- Runs under these limits that have not ended, pending or not, the oldest first, and whether they were asked to cancel themselves.
-- At most ?2.
-- name: open_under
SELECT u.limit_id, u.name, u.most, u.run_id, u.weight, u.created_at,
       EXISTS (SELECT 1 FROM signals g WHERE g.run_id = u.run_id AND g.name = '$cancel') FROM (
    SELECT l.id AS limit_id, l.name, l.most, a.id AS run_id, coalesce(a.weight_a, 1) AS weight, a.created_at
    FROM json_each(?1) u CROSS JOIN limits l ON l.id = u.value
    LEFT JOIN runs a INDEXED BY runs_in_a ON a.finished_at IS NULL AND a.limit_a = l.id
    UNION ALL SELECT l.id, l.name, l.most, a.id, coalesce(a.weight_b, 1), a.created_at FROM json_each(?1) u CROSS JOIN limits l ON l.id = u.value
    CROSS JOIN runs a INDEXED BY runs_in_b ON a.finished_at IS NULL AND a.limit_b = l.id
    UNION ALL SELECT l.id, l.name, l.most, a.id, coalesce(a.weight_c, 1), a.created_at FROM json_each(?1) u CROSS JOIN limits l ON l.id = u.value
    CROSS JOIN runs a INDEXED BY runs_in_c ON a.finished_at IS NULL AND a.limit_c = l.id
    ORDER BY 1, 6, 4 LIMIT ?2) u
ORDER BY 1, 6, 4

-- name: any_queue
SELECT 1 FROM queues LIMIT 1

-- The queue that has waited longest in each of these lanes, with its weight, and queue 0 if something waits in it. At most ?2.
-- name: waiting_queues
SELECT w.queue, coalesce(f.weight, 1) FROM (
    SELECT (SELECT s.queue FROM steps s INDEXED BY steps_queued
            WHERE s.state = 'ready' AND s.queue > 0 AND s.lane = l.value AND s.ready_at <= (SELECT store_now())
            ORDER BY s.ready_at LIMIT 1) AS queue FROM json_each(?1) l
    UNION
    SELECT (SELECT s.queue FROM steps s INDEXED BY steps_ready
            WHERE s.state = 'ready' AND s.lane = l.value AND s.priority = {top_priority(l.value)} AND s.queue = 0
              AND s.ready_at <= (SELECT store_now()) LIMIT 1) FROM json_each(?1) l) w
LEFT JOIN queues q ON q.id = w.queue LEFT JOIN fairs f ON f.name = q.fair
WHERE w.queue IS NOT NULL LIMIT ?2

-- name: set_fair
INSERT INTO fairs (name, weight, actor, note, set_at) VALUES (?1, ?2, ?3, ?4, store_now())
ON CONFLICT (name) DO UPDATE SET weight = excluded.weight, actor = excluded.actor, note = excluded.note, set_at = excluded.set_at

-- Fair keys that have a queue or a weight, by name, from one after ?2.
-- name: fairs
SELECT k.name, coalesce(f.weight, 1), coalesce(f.actor, ''), coalesce(f.note, ''), f.set_at FROM (
    SELECT fair AS name FROM queues WHERE fair > ?2 GROUP BY fair
    UNION SELECT name FROM fairs WHERE name > ?2) k
LEFT JOIN fairs f ON f.name = k.name
WHERE ?1 IS NULL OR {namespace_of(k.name)} = ?1
ORDER BY k.name LIMIT ?3
