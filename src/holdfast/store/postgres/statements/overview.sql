-- What people look at.

-- The open steps of each of these runs, among the newest $2 steps of each, without payloads.
-- name: open_steps
SELECT s.run_id, s.n, s.key, s.kind, s.name, s.lane, s.state, s.priority, s.ready_at, s.attempt, s.losses, s.excused,
       s.attempts_max, s.timeout_s, s.fence, s.agent, s.complete_by, NULL::bytea, NULL::bytea, NULL::bytea, s.error,
       NULL::text, NULL::bytea, s.progress, s.delivered_seq, s.issued_at, s.started_at, s.finished_at, s.after_seq,
       s.timeouts, s.throttled, s.effect, s.queue
FROM unnest($1::text[]) u(id) CROSS JOIN LATERAL (
    SELECT {Step} FROM holdfast.steps WHERE run_id = u.id ORDER BY n DESC LIMIT $2) s
WHERE s.finished_at IS NULL ORDER BY s.run_id, s.n

-- In each lane, how many steps of runs that go on are due, and since when the oldest of them is. At most $1 of each lane and
-- priority are looked at.
-- name: waiting_lanes
WITH RECURSIVE places(lane, priority) AS (
    SELECT l.id, {top_priority(l.id)} FROM holdfast.lanes l
    UNION ALL
    SELECT p.lane, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL)
SELECT p.lane, sum(due.ready)::int, min(due.since) FROM places p
CROSS JOIN LATERAL (
    SELECT count(*) AS ready, min(s.ready_at) AS since FROM (
        SELECT run_id, ready_at FROM holdfast.steps
        WHERE state = 'ready' AND lane = p.lane AND priority = p.priority
          AND ready_at <= (SELECT clock_timestamp())
        ORDER BY ready_at LIMIT $1) s
    JOIN holdfast.runs r ON r.id = s.run_id AND {active(r)}) due
WHERE p.priority IS NOT NULL AND due.ready > 0 GROUP BY p.lane

-- How many runs of each workflow and version wait for a scheduler, and since when. At most $1 of each are counted.
-- name: pending_codes
WITH RECURSIVE kinds(workflow, version) AS (
    (SELECT workflow, version FROM holdfast.runs WHERE state = 'pending' ORDER BY workflow, version LIMIT 1)
    UNION ALL
    SELECT n.workflow, n.version FROM kinds k CROSS JOIN LATERAL (
        SELECT r.workflow, r.version FROM holdfast.runs r
        WHERE r.state = 'pending' AND (r.workflow, r.version) > (k.workflow, k.version)
        ORDER BY r.workflow, r.version LIMIT 1) n)
SELECT k.workflow, k.version, w.runs::int, w.since FROM kinds k
CROSS JOIN LATERAL (
    SELECT count(*) AS runs, min(created_at) AS since FROM (
        SELECT created_at FROM holdfast.runs
        WHERE state = 'pending' AND workflow = k.workflow AND version = k.version
        ORDER BY priority DESC, created_at LIMIT $1) d) w

-- Runs without a parent that ended in this state from $2 to $3 in the namespace $4, or in all, the newest first.
-- name: ended_in
SELECT workflow, version, state, created_at, finished_at FROM holdfast.runs
WHERE state = $1 AND finished_at >= $2::timestamptz AND finished_at < $3::timestamptz AND finished_at IS NOT NULL
  AND ($4::text IS NULL OR namespace = $4) AND ($5::text IS NULL OR workflow = $5) AND parent_id IS NULL
ORDER BY finished_at DESC LIMIT $6

-- How many of them ended in each of these states on earlier days at the same time, counted up to $7 each.
-- name: count_ended
SELECT d.day, s.state, c.runs::int FROM unnest($1::int[]) d(day) CROSS JOIN unnest($2::text[]) s(state)
CROSS JOIN LATERAL (
    SELECT count(*) AS runs FROM (
        SELECT 1 FROM holdfast.runs r
        WHERE r.state = s.state AND r.finished_at >= $3::timestamptz - make_interval(days => d.day)
          AND r.finished_at < $4::timestamptz - make_interval(days => d.day) AND r.finished_at IS NOT NULL
          AND ($5::text IS NULL OR r.namespace = $5) AND ($6::text IS NULL OR r.workflow = $6)
          AND r.parent_id IS NULL LIMIT $7) e) c

-- How many runs of the namespace $7 fit a filter, by state, counted up to $6 in all, the newest first.
-- name: count_meant
SELECT m.state, count(*)::int FROM (
    SELECT state FROM holdfast.runs
    WHERE namespace = $7 AND (created_at, id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, ''))
      AND created_at >= coalesce($8::timestamptz, '-infinity') AND {is_meant(runs)}
      AND ($12::text IS NULL OR (id >= $12 AND id < $13::text))
    ORDER BY created_at DESC, id DESC LIMIT $6) m GROUP BY m.state
