-- Queues, fair keys and limits, and the walk: how a claim goes from queue to queue (see walk.py).

-- What is ready in these lanes, as (lane, priority). Lanes behind a gate are left out.
-- name: step_levels
WITH RECURSIVE places(lane, priority) AS (
    SELECT l.lane, {top_priority(l.lane)}
    FROM (SELECT u.lane FROM unnest($2::int[]) u(lane) LEFT JOIN holdfast.lanes l ON l.id = u.lane WHERE {passable(l)}) l
    UNION ALL
    SELECT p.lane, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL)
SELECT lane, priority FROM places WHERE priority IS NOT NULL AND {is_member($1)}

-- The same for probes of the breaker $3, which this transaction has locked.
-- name: probe_levels
WITH RECURSIVE places(lane, priority) AS (
    SELECT l.id, {top_priority(l.id)} FROM unnest($2::int[]) u(lane) JOIN holdfast.lanes l ON l.id = u.lane AND l.depends = $3
    WHERE NOT EXISTS (SELECT FROM holdfast.holds h WHERE h.scope = 'step' AND h.value = l.name)
    UNION ALL
    SELECT p.lane, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL)
SELECT lane, priority FROM places WHERE priority IS NOT NULL AND {is_member($1)}

-- The queues of one priority that have something ready, in the order of the ring: lanes, each from a queue up to another
-- one. The next queue is one look into the index, whatever stands in between.
-- name: step_queues
WITH RECURSIVE ring AS (
    SELECT u.lane, u.after, u.upto, u.place FROM unnest($2::int[], $3::int[], $4::int[]) WITH ORDINALITY u(lane, after, upto, place)),
turn(place, lane, upto, queue, k) AS (
    (SELECT r.place, r.lane, r.upto, s.queue, 1 FROM (SELECT place, lane, after, upto FROM ring ORDER BY place OFFSET 0) r
     CROSS JOIN LATERAL (
        SELECT w.queue FROM holdfast.steps w
        WHERE w.state = 'ready' AND w.lane = r.lane AND w.priority = $1 AND w.queue > r.after AND w.queue <= r.upto
        ORDER BY w.queue LIMIT 1) s LIMIT 1)
    UNION ALL
    SELECT n.place, n.lane, n.upto, n.queue, t.k + 1 FROM turn t CROSS JOIN LATERAL (
        (SELECT t.place, t.lane, t.upto, w.queue FROM holdfast.steps w
         WHERE w.state = 'ready' AND w.lane = t.lane AND w.priority = $1 AND w.queue > t.queue AND w.queue <= t.upto
         ORDER BY w.queue LIMIT 1)
        UNION ALL
        (SELECT r.place, r.lane, r.upto, s.queue FROM (SELECT place, lane, after, upto FROM ring WHERE place > t.place ORDER BY place OFFSET 0) r
         CROSS JOIN LATERAL (
            SELECT w.queue FROM holdfast.steps w
            WHERE w.state = 'ready' AND w.lane = r.lane AND w.priority = $1 AND w.queue > r.after AND w.queue <= r.upto
            ORDER BY w.queue LIMIT 1) s LIMIT 1)
        LIMIT 1) n
    WHERE t.k < $5)
SELECT t.lane, t.queue, coalesce(f.weight, 1), q.limits, q.rates
FROM turn t LEFT JOIN holdfast.queues q ON q.id = t.queue LEFT JOIN holdfast.fairs f ON f.name = q.fair
ORDER BY t.k

-- The same for a node that works only on the runs $6: it looks at their steps.
-- name: step_queues_of
SELECT d.lane, d.queue, coalesce(f.weight, 1), q.limits, q.rates
FROM (SELECT DISTINCT r.place, w.lane, w.queue
      FROM unnest($2::int[], $3::int[], $4::int[]) WITH ORDINALITY r(lane, after, upto, place)
      JOIN holdfast.steps w ON w.run_id = ANY($6::text[]) AND w.lane = r.lane AND w.queue > r.after AND w.queue <= r.upto
      WHERE w.state = 'ready' AND w.priority = $1) d
LEFT JOIN holdfast.queues q ON q.id = d.queue LEFT JOIN holdfast.fairs f ON f.name = q.fair
ORDER BY d.place, d.queue LIMIT $5

-- Takes steps of each of these queues, up to its number, the longest waiting first. Rows that are locked belong to another
-- claim.
-- At most $5 suspects are taken. A step that has waited for less than $8 seconds is left out.
-- name: take_steps
WITH due AS (
    SELECT s.run_id, s.n, s.priority, s.ready_at, s.losses >= $4 AS suspect
    FROM unnest($2::int[], $3::int[], $6::int[]) u(lane, queue, quota)
    CROSS JOIN LATERAL (
        SELECT w.run_id, w.n, w.priority, w.ready_at, w.losses FROM holdfast.steps w
        WHERE w.lane = u.lane AND w.state = 'ready' AND w.priority = $7 AND w.queue = u.queue
          AND w.ready_at <= (SELECT clock_timestamp() - make_interval(secs => $8)) AND ($5 > 0 OR w.losses < $4)
          AND (SELECT {goes_on(r)} FROM holdfast.runs r WHERE r.id = w.run_id)
        ORDER BY w.ready_at LIMIT u.quota
        FOR UPDATE OF w SKIP LOCKED) s
    WHERE {is_member($1)}
    LIMIT (SELECT sum(quota) FROM unnest($6::int[]) quota)),
{take_queued}

-- name: take_steps_of
WITH due AS (
    SELECT s.run_id, s.n, s.priority, s.ready_at, s.losses >= $4 AS suspect
    FROM unnest($2::int[], $3::int[], $6::int[]) u(lane, queue, quota)
    CROSS JOIN LATERAL (
        SELECT w.run_id, w.n, w.priority, w.ready_at, w.losses FROM holdfast.steps w
        WHERE w.run_id = ANY($9::text[]) AND w.lane = u.lane AND w.state = 'ready' AND w.priority = $7 AND w.queue = u.queue
          AND w.ready_at <= (SELECT clock_timestamp() - make_interval(secs => $8)) AND ($5 > 0 OR w.losses < $4)
          AND (SELECT {goes_on(r)} FROM holdfast.runs r WHERE r.id = w.run_id)
        ORDER BY w.ready_at LIMIT u.quota
        FOR UPDATE OF w SKIP LOCKED) s
    WHERE {is_member($1)}
    LIMIT (SELECT sum(quota) FROM unnest($6::int[]) quota)),
{take_queued}

-- fragment: take_queued
next AS (
    SELECT run_id, n FROM (
        SELECT run_id, n, suspect, row_number() OVER (PARTITION BY suspect ORDER BY priority DESC, ready_at) AS place
        FROM due) d
    WHERE NOT suspect OR place <= $5)
UPDATE holdfast.steps s SET state = 'running', agent = $1, attempt = s.attempt + 1, fence = s.fence + 1,
                   started_at = clock_timestamp(),
                   complete_by = clock_timestamp() + make_interval(secs => s.timeout_s)
FROM next
WHERE s.run_id = next.run_id AND s.n = next.n
RETURNING s.lane, s.queue, {ClaimedStep(s)}

-- Pending runs of these workflows, as (number of the workflow, priority).
-- name: run_levels
WITH RECURSIVE places(lane, workflow, version, priority) AS (
    SELECT u.lane::int, u.workflow, u.version, (
        SELECT r.priority FROM holdfast.runs r WHERE r.state = 'pending' AND r.workflow = u.workflow AND r.version = u.version
        ORDER BY r.priority DESC LIMIT 1)
    FROM unnest($2::text[], $3::text[]) WITH ORDINALITY u(workflow, version, lane)
    UNION ALL
    SELECT p.lane, p.workflow, p.version, (
        SELECT r.priority FROM holdfast.runs r WHERE r.state = 'pending' AND r.workflow = p.workflow AND r.version = p.version
          AND r.priority < p.priority ORDER BY r.priority DESC LIMIT 1)
    FROM places p WHERE p.priority IS NOT NULL)
SELECT lane, priority FROM places WHERE priority IS NOT NULL AND {is_member($1)}

-- name: run_queues
WITH RECURSIVE ring AS (
    SELECT u.lane, u.workflow, u.version, u.after, u.upto, u.place
    FROM unnest($2::int[], $3::text[], $4::text[], $5::int[], $6::int[]) WITH ORDINALITY u(lane, workflow, version, after, upto, place)),
turn(place, lane, workflow, version, upto, queue, k) AS (
    (SELECT r.place, r.lane, r.workflow, r.version, r.upto, s.queue, 1 FROM (SELECT place, lane, workflow, version, after, upto FROM ring ORDER BY place OFFSET 0) r
     CROSS JOIN LATERAL (
        SELECT w.queue FROM holdfast.runs w
        WHERE w.state = 'pending' AND w.workflow = r.workflow AND w.version = r.version AND w.priority = $1
          AND w.queue > r.after AND w.queue <= r.upto
        ORDER BY w.queue LIMIT 1) s LIMIT 1)
    UNION ALL
    SELECT n.place, n.lane, n.workflow, n.version, n.upto, n.queue, t.k + 1 FROM turn t CROSS JOIN LATERAL (
        (SELECT t.place, t.lane, t.workflow, t.version, t.upto, w.queue FROM holdfast.runs w
         WHERE w.state = 'pending' AND w.workflow = t.workflow AND w.version = t.version AND w.priority = $1
           AND w.queue > t.queue AND w.queue <= t.upto
         ORDER BY w.queue LIMIT 1)
        UNION ALL
        (SELECT r.place, r.lane, r.workflow, r.version, r.upto, s.queue
         FROM (SELECT place, lane, workflow, version, after, upto FROM ring WHERE place > t.place ORDER BY place OFFSET 0) r
         CROSS JOIN LATERAL (
            SELECT w.queue FROM holdfast.runs w
            WHERE w.state = 'pending' AND w.workflow = r.workflow AND w.version = r.version AND w.priority = $1
              AND w.queue > r.after AND w.queue <= r.upto
            ORDER BY w.queue LIMIT 1) s LIMIT 1)
        LIMIT 1) n
    WHERE t.k < $7)
SELECT t.lane, t.queue, coalesce(f.weight, 1), q.limits, q.rates
FROM turn t LEFT JOIN holdfast.queues q ON q.id = t.queue LEFT JOIN holdfast.fairs f ON f.name = q.fair
ORDER BY t.k

-- name: run_queues_of
SELECT d.lane, d.queue, coalesce(f.weight, 1), q.limits, q.rates
FROM (SELECT DISTINCT r.place, r.lane, w.queue
      FROM unnest($2::int[], $3::text[], $4::text[], $5::int[], $6::int[]) WITH ORDINALITY r(lane, workflow, version, after, upto, place)
      JOIN holdfast.runs w ON w.id = ANY($8::text[]) AND w.workflow = r.workflow AND w.version = r.version
       AND w.queue > r.after AND w.queue <= r.upto
      WHERE w.state = 'pending' AND w.priority = $1) d
LEFT JOIN holdfast.queues q ON q.id = d.queue LEFT JOIN holdfast.fairs f ON f.name = q.fair
ORDER BY d.place, d.queue LIMIT $7

-- Takes pending runs of each of these queues, up to its number, the oldest first. It stops when they have $8 or more steps to
-- replay. A node that works only on certain runs names them in $9.
-- name: take_runs
WITH next AS (
    SELECT c.id FROM unnest($2::text[], $3::text[], $4::int[], $5::int[]) u(workflow, version, queue, quota)
    CROSS JOIN LATERAL (
        SELECT w.id, w.created_at FROM holdfast.runs w
        WHERE w.workflow = u.workflow AND w.version = u.version AND w.state = 'pending' AND w.priority = $6 AND w.queue = u.queue
          AND w.created_at <= (SELECT clock_timestamp() - make_interval(secs => $7))
          AND ($9::text[] IS NULL OR w.id = ANY($9))
        ORDER BY w.created_at LIMIT u.quota
        FOR UPDATE OF w SKIP LOCKED) c
    WHERE {is_member($1)}
    ORDER BY c.created_at
    LIMIT (SELECT sum(quota) FROM unnest($5::int[]) quota)),
sized AS (
    SELECT h.id, sum(h.steps) OVER (ORDER BY h.place) - h.steps AS before FROM (
        SELECT next.id, row_number() OVER () AS place,
               (SELECT coalesce(max(n), 0) FROM holdfast.steps WHERE run_id = next.id) AS steps FROM next) h)
UPDATE holdfast.runs r SET state = 'running', owner = $1, fence = r.fence + 1,
                  started_at = coalesce(r.started_at, clock_timestamp())
FROM sized WHERE r.id = sized.id AND sized.before < $8
RETURNING r.queue, {Run(r)}

-- Locks those of these limits that nobody else has locked, until the end of the transaction. Nobody waits here: whoever does not
-- get a lock passes the limit over. The number before the id keeps these locks apart from others.
-- name: lock_limits
SELECT u.id FROM unnest($1::int[]) u(id) WHERE pg_try_advisory_xact_lock(4870118, u.id)

-- The same for somebody who has to wait, in the order of the ids.
-- name: wait_for_limits
SELECT pg_advisory_xact_lock(4870118, u.id) FROM (SELECT id FROM unnest($1::int[]) u(id) ORDER BY id) u

-- How much of these limits is in use: the weight of the steps that run under each, and of the runs that have begun and not
-- ended. This must be a statement of its own after the locks: it sees what was committed before it began.
-- name: limit_rooms
SELECT l.id, l.kind, l.most, l.per_s, l.burst, l.tat, CASE WHEN l.kind = 'limit' THEN {used_of(l)} ELSE 0 END,
       extract(epoch FROM clock_timestamp())::float8, l.adaptive AND NOT l.is_set,
       l.saved_for, l.saved_until - extract(epoch FROM clock_timestamp())::float8, l.rests_until - extract(epoch FROM clock_timestamp())::float8
FROM holdfast.limits l WHERE l.id = ANY($1::int[])

-- Most limits are of steps that have one alone. So the indexes of the others are looked into only if there is anything in them
-- at all, which is asked once.
-- fragment: used_of(l)
(coalesce((SELECT sum(coalesce(s.weight_a, 1)) FROM holdfast.steps s WHERE s.limit_a = {l}.id AND s.finished_at IS NULL AND s.state = 'running'), 0)
 + CASE WHEN (SELECT EXISTS (SELECT 1 FROM holdfast.steps WHERE limit_b IS NOT NULL AND finished_at IS NULL)) THEN
       coalesce((SELECT sum(coalesce(s.weight_b, 1)) FROM holdfast.steps s WHERE s.limit_b = {l}.id AND s.finished_at IS NULL AND s.state = 'running'), 0) ELSE 0 END
 + CASE WHEN (SELECT EXISTS (SELECT 1 FROM holdfast.steps WHERE limit_c IS NOT NULL AND finished_at IS NULL)) THEN
       coalesce((SELECT sum(coalesce(s.weight_c, 1)) FROM holdfast.steps s WHERE s.limit_c = {l}.id AND s.finished_at IS NULL AND s.state = 'running'), 0) ELSE 0 END
 + CASE WHEN (SELECT EXISTS (SELECT 1 FROM holdfast.runs WHERE limit_a IS NOT NULL AND finished_at IS NULL)) THEN
       coalesce((SELECT sum(coalesce(r.weight_a, 1)) FROM holdfast.runs r WHERE r.limit_a = {l}.id AND {occupies(r)}), 0) ELSE 0 END
 + CASE WHEN (SELECT EXISTS (SELECT 1 FROM holdfast.runs WHERE limit_b IS NOT NULL AND finished_at IS NULL)) THEN
       coalesce((SELECT sum(coalesce(r.weight_b, 1)) FROM holdfast.runs r WHERE r.limit_b = {l}.id AND {occupies(r)}), 0) ELSE 0 END
 + CASE WHEN (SELECT EXISTS (SELECT 1 FROM holdfast.runs WHERE limit_c IS NOT NULL AND finished_at IS NULL)) THEN
       coalesce((SELECT sum(coalesce(r.weight_c, 1)) FROM holdfast.runs r WHERE r.limit_c = {l}.id AND {occupies(r)}), 0) ELSE 0 END)::int

-- True for a run that has begun and not ended. One that was held before it began has no slot.
-- fragment: occupies(r)
({r}.finished_at IS NULL AND {r}.state IN ('running', 'undoing', 'stuck', 'held') AND {r}.resume IS DISTINCT FROM 'pending')

-- name: spend_tokens
UPDATE holdfast.limits l SET tat = greatest(l.tat, extract(epoch FROM clock_timestamp())::float8) + u.tokens * l.per_s / l.most
FROM unnest($1::int[], $2::int[]) u(id, tokens) WHERE l.id = u.id AND l.most > 0

-- True if something in this queue could have begun so long ago.
-- name: steps_wait_long
SELECT 1 FROM holdfast.steps w
WHERE w.lane = $1 AND w.state = 'ready' AND w.priority = $2 AND w.queue = $3
  AND w.ready_at <= (SELECT clock_timestamp() - make_interval(secs => $4))
  AND (SELECT {goes_on(r)} FROM holdfast.runs r WHERE r.id = w.run_id) LIMIT 1

-- name: runs_wait_long
SELECT 1 FROM holdfast.runs w
WHERE w.workflow = $1 AND w.version = $2 AND w.state = 'pending' AND w.priority = $3 AND w.queue = $4
  AND w.created_at <= (SELECT clock_timestamp() - make_interval(secs => $5)) LIMIT 1

-- Writes for which queue the slots of limits are saved up, and for how long; and for how long none are. The claim that does this
-- has locked the limits. If another statement changes one of the rows now, the next claim writes it.
-- name: save_slots
UPDATE holdfast.limits SET saved_for = $2, saved_until = extract(epoch FROM clock_timestamp())::float8 + $3,
    rests_until = extract(epoch FROM clock_timestamp())::float8 + $4
WHERE id IN (SELECT id FROM holdfast.limits WHERE id = ANY($1::int[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)

-- name: queue_numbers
SELECT q.id, u.key, q.limits FROM unnest($1::text[]) u(key) JOIN holdfast.queues q ON q.key = u.key

-- name: make_queues
INSERT INTO holdfast.queues (key, fair, limits, rates)
SELECT u.key, u.fair, u.limits, u.rates FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) u(key, fair, limits, rates)
ON CONFLICT (key) DO NOTHING

-- name: limits_named
SELECT l.id, l.name, l.declared, l.per_s, l.burst, CASE WHEN l.adaptive THEN l.least END FROM unnest($1::text[]) u(name) JOIN holdfast.limits l ON l.name = u.name

-- What the code says about limits. The number that an operator has set stays in force, and so does one that the leader has
-- moved, as far as the code allows it. $6 are the floors of adaptive ones, and $7 the numbers that new ones begin with.
-- name: declare_limits
INSERT INTO holdfast.limits (name, kind, declared, most, per_s, burst, adaptive, least)
SELECT u.name, u.kind, u.declared, u.first, u.per_s, u.burst, u.least IS NOT NULL, coalesce(u.least, 1)
FROM unnest($1::text[], $2::text[], $3::int[], $4::float8[], $5::int[], $6::int[], $7::int[])
     u(name, kind, declared, per_s, burst, least, first)
ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, declared = excluded.declared, per_s = excluded.per_s, burst = excluded.burst,
    changed_at = clock_timestamp(),
    adaptive = excluded.adaptive, least = excluded.least,
    most = CASE WHEN limits.is_set THEN limits.most
                WHEN limits.adaptive AND excluded.adaptive THEN greatest(excluded.least, least(limits.most, excluded.declared))
                ELSE excluded.most END,
    tat = least(limits.tat, extract(epoch FROM clock_timestamp()) + excluded.burst * excluded.per_s / excluded.declared)

-- fragment: saved_for(l)
CASE WHEN {l}.saved_until > extract(epoch FROM clock_timestamp()) THEN {l}.saved_for END

-- Limits and rates by name, with how much of each is in use.
-- name: limits
SELECT l.id, l.name, l.kind, l.declared, l.most, l.per_s, l.burst, l.tat, l.is_set, l.actor, l.note,
       CASE WHEN l.kind = 'limit' THEN {used_of(l)} ELSE 0 END, extract(epoch FROM clock_timestamp())::float8,
       l.adaptive, l.least, l.moved, extract(epoch FROM l.moved_at)::float8, {saved_for(l)}
FROM holdfast.limits l WHERE l.name > $2 AND ($1::text IS NULL OR holdfast.namespace_of(l.name) = $1) ORDER BY l.name LIMIT $3

-- name: limit
SELECT l.id, l.name, l.kind, l.declared, l.most, l.per_s, l.burst, l.tat, l.is_set, l.actor, l.note,
       CASE WHEN l.kind = 'limit' THEN {used_of(l)} ELSE 0 END, extract(epoch FROM clock_timestamp())::float8,
       l.adaptive, l.least, l.moved, extract(epoch FROM l.moved_at)::float8, {saved_for(l)}
FROM holdfast.limits l WHERE l.name = $1

-- name: limits_of_queue
SELECT l.id, l.name, l.kind, l.declared, l.most, l.per_s, l.burst, l.tat, l.is_set, l.actor, l.note,
       CASE WHEN l.kind = 'limit' THEN {used_of(l)} ELSE 0 END, extract(epoch FROM clock_timestamp())::float8,
       l.adaptive, l.least, l.moved, extract(epoch FROM l.moved_at)::float8, {saved_for(l)}, u.weight
FROM holdfast.queues q CROSS JOIN LATERAL (SELECT (e ->> 0)::int AS id, (e ->> 1)::int AS weight FROM jsonb_array_elements(q.limits::jsonb) e UNION ALL SELECT e::int, 1 FROM jsonb_array_elements_text(q.rates::jsonb) e) u JOIN holdfast.limits l ON l.id = u.id
WHERE q.id = $1 ORDER BY l.kind, l.name

-- Steps that run and runs that have begun under a limit, the oldest first.
-- name: limit_holders
SELECT run_id, n, name, since, weight FROM (
    SELECT s.run_id, s.n, s.name, s.started_at AS since, coalesce(s.weight_a, 1) AS weight FROM holdfast.steps s WHERE s.limit_a = $1 AND s.finished_at IS NULL AND s.state = 'running'
    UNION ALL SELECT s.run_id, s.n, s.name, s.started_at AS since, coalesce(s.weight_b, 1) AS weight FROM holdfast.steps s WHERE s.limit_b = $1 AND s.finished_at IS NULL AND s.state = 'running'
    UNION ALL SELECT s.run_id, s.n, s.name, s.started_at AS since, coalesce(s.weight_c, 1) AS weight FROM holdfast.steps s WHERE s.limit_c = $1 AND s.finished_at IS NULL AND s.state = 'running'
    UNION ALL SELECT r.id, 0, r.workflow, r.started_at, coalesce(r.weight_a, 1) FROM holdfast.runs r WHERE r.limit_a = $1 AND {occupies(r)}
    UNION ALL SELECT r.id, 0, r.workflow, r.started_at, coalesce(r.weight_b, 1) FROM holdfast.runs r WHERE r.limit_b = $1 AND {occupies(r)}
    UNION ALL SELECT r.id, 0, r.workflow, r.started_at, coalesce(r.weight_c, 1) FROM holdfast.runs r WHERE r.limit_c = $1 AND {occupies(r)}) u ORDER BY since, run_id, n LIMIT $2

-- Steps that are ready and runs that are pending under a limit, the oldest first.
-- name: limit_waiters
SELECT run_id, n, name, since, weight FROM (
    SELECT s.run_id, s.n, s.name, s.ready_at AS since, coalesce(s.weight_a, 1) AS weight FROM holdfast.steps s WHERE s.limit_a = $1 AND s.finished_at IS NULL AND s.state = 'ready'
    UNION ALL SELECT s.run_id, s.n, s.name, s.ready_at AS since, coalesce(s.weight_b, 1) AS weight FROM holdfast.steps s WHERE s.limit_b = $1 AND s.finished_at IS NULL AND s.state = 'ready'
    UNION ALL SELECT s.run_id, s.n, s.name, s.ready_at AS since, coalesce(s.weight_c, 1) AS weight FROM holdfast.steps s WHERE s.limit_c = $1 AND s.finished_at IS NULL AND s.state = 'ready'
    UNION ALL SELECT r.id, 0, r.workflow, r.created_at, coalesce(r.weight_a, 1) FROM holdfast.runs r WHERE r.limit_a = $1 AND r.finished_at IS NULL AND r.state = 'pending'
    UNION ALL SELECT r.id, 0, r.workflow, r.created_at, coalesce(r.weight_b, 1) FROM holdfast.runs r WHERE r.limit_b = $1 AND r.finished_at IS NULL AND r.state = 'pending'
    UNION ALL SELECT r.id, 0, r.workflow, r.created_at, coalesce(r.weight_c, 1) FROM holdfast.runs r WHERE r.limit_c = $1 AND r.finished_at IS NULL AND r.state = 'pending') u ORDER BY since, run_id, n LIMIT $2

-- Adds how attempts under adaptive limits went: (id, ok, failed, seconds). $5 is the namespace that they must be in, if any.
-- name: observe_limits
UPDATE holdfast.limits l SET ok = l.ok + u.ok, failed = l.failed + u.failed, seconds = l.seconds + u.seconds, reported_at = clock_timestamp()
FROM unnest($1::int[], $2::int[], $3::int[], $4::float8[]) u(id, ok, failed, seconds)
WHERE l.id = u.id AND l.adaptive AND ($5::text IS NULL OR holdfast.namespace_of(l.name) = $5)

-- Adaptive limits that agents have reported about within the last $1 seconds. One that an operator has set stays.
-- name: adaptive_limits
SELECT l.id, l.name, l.most, l.least, l.declared, l.usual_s, l.ok, l.failed, l.seconds, {used_of(l)}
FROM holdfast.limits l WHERE l.adaptive AND l.reported_at > (SELECT clock_timestamp() - make_interval(secs => $1)) AND NOT l.is_set
ORDER BY l.reported_at LIMIT $2

-- Moves the number of an adaptive limit from $2, if neither the code nor an operator has changed it since.
-- name: move_limit
UPDATE holdfast.limits SET most = $5, usual_s = $6, moved = coalesce($7, moved),
    moved_at = CASE WHEN $7 IS NULL THEN moved_at ELSE clock_timestamp() END
WHERE id = $1 AND most = $2 AND least = $3 AND declared = $4 AND adaptive AND NOT is_set

-- Sets the number of a limit. Without one, that of the code counts again, and an adaptive one goes on from where it is. What
-- was spent under the old rate makes nobody wait longer than a full burst of the new one would.
-- name: set_limit
UPDATE holdfast.limits SET tat = least(tat, extract(epoch FROM clock_timestamp()) + burst * per_s / nullif(coalesce($2::int, declared), 0)),
    most = coalesce($2::int, CASE WHEN adaptive THEN greatest(least, least(most, declared)) ELSE declared END), is_set = $2::int IS NOT NULL, actor = $3, note = $4,
    changed_at = clock_timestamp()
WHERE name = $1

-- Puts a run that was just claimed into its queue. It has done nothing yet.
-- name: queue_run
UPDATE holdfast.runs SET state = 'pending', owner = NULL, fence = fence + 1, started_at = NULL, under = $3, queue = $4,
    limit_a = $5, limit_b = $6, limit_c = $7, weight_a = $8, weight_b = $9, weight_c = $10
WHERE id = $1 AND fence = $2 AND state = 'running' AND NOT EXISTS (SELECT FROM holdfast.steps s WHERE s.run_id = $1)

-- Runs under these limits that have not ended, pending or not, the oldest first, and whether they were asked to cancel themselves.
-- name: open_under
SELECT l.id, l.name, l.most, r.id, r.weight, r.created_at,
       EXISTS (SELECT FROM holdfast.signals g WHERE g.run_id = r.id AND g.name = '$cancel') FROM unnest($1::int[]) u(id) JOIN holdfast.limits l ON l.id = u.id
LEFT JOIN LATERAL (
    SELECT a.id, coalesce(a.weight_a, 1) AS weight, a.created_at FROM holdfast.runs a WHERE a.limit_a = l.id AND a.finished_at IS NULL
    UNION ALL SELECT a.id, coalesce(a.weight_b, 1), a.created_at FROM holdfast.runs a WHERE a.limit_b = l.id AND a.finished_at IS NULL
    UNION ALL SELECT a.id, coalesce(a.weight_c, 1), a.created_at FROM holdfast.runs a WHERE a.limit_c = l.id AND a.finished_at IS NULL
    ORDER BY created_at, id LIMIT $2) r ON true
ORDER BY l.id, r.created_at, r.id

-- name: any_queue
SELECT 1 FROM holdfast.queues LIMIT 1

-- The queues that have waited longest in these lanes, with their weights, and queue 0 if something waits in it.
-- name: waiting_queues
SELECT w.queue, coalesce(f.weight, 1) FROM (
    SELECT DISTINCT s.queue FROM unnest($1::int[]) l(lane) CROSS JOIN LATERAL (
        SELECT queue FROM holdfast.steps
        WHERE state = 'ready' AND queue > 0 AND lane = l.lane AND ready_at <= (SELECT clock_timestamp())
        ORDER BY ready_at LIMIT $2) s
    UNION
    SELECT 0 FROM unnest($1::int[]) l(lane) CROSS JOIN LATERAL (
        SELECT FROM holdfast.steps
        WHERE state = 'ready' AND lane = l.lane AND priority = {top_priority(l.lane)} AND queue = 0
          AND ready_at <= (SELECT clock_timestamp()) LIMIT 1) s) w
LEFT JOIN holdfast.queues q ON q.id = w.queue LEFT JOIN holdfast.fairs f ON f.name = q.fair

-- name: set_fair
INSERT INTO holdfast.fairs (name, weight, actor, note, set_at) VALUES ($1, $2, $3, $4, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET weight = excluded.weight, actor = excluded.actor, note = excluded.note, set_at = excluded.set_at

-- Fair keys that have a queue or a weight, by name, from one after $2.
-- name: fairs
SELECT k.name, coalesce(f.weight, 1), coalesce(f.actor, ''), coalesce(f.note, ''), f.set_at FROM (
    SELECT DISTINCT fair AS name FROM holdfast.queues WHERE fair > $2
    UNION SELECT name FROM holdfast.fairs WHERE name > $2) k
LEFT JOIN holdfast.fairs f ON f.name = k.name
WHERE $1::text IS NULL OR holdfast.namespace_of(k.name) = $1
ORDER BY k.name LIMIT $3
