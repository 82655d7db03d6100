-- What people look at.

-- The open steps of each of these runs, among the newest ?2 steps of each, without payloads.
-- name: open_steps
SELECT s.run_id, s.n, s.key, s.kind, s.name, s.lane, s.state, s.priority, s.ready_at, s.attempt, s.losses, s.excused,
       s.attempts_max, s.timeout_s, s.fence, s.agent, s.complete_by, NULL, NULL, NULL, s.error, NULL, NULL,
       s.progress, s.delivered_seq, s.issued_at, s.started_at, s.finished_at, s.after_seq, s.timeouts, s.throttled,
       s.effect, s.queue
FROM json_each(?1) u CROSS JOIN steps s ON s.run_id = u.value
WHERE s.finished_at IS NULL AND s.n > coalesce((SELECT max(n) FROM steps WHERE run_id = u.value), 0) - ?2

-- In each lane, how many steps of runs that go on are due, and since when the oldest of them is. At most ?1 of each lane and
-- priority are looked at.
-- name: waiting_lanes
WITH RECURSIVE places (lane, priority) AS (
    SELECT l.id, {top_priority(l.id)} FROM lanes l
    UNION ALL
    SELECT p.lane, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL),
due (lane, ready, since) AS (
    SELECT p.lane,
           (SELECT count(*) FROM (
                SELECT s.run_id FROM steps s INDEXED BY steps_ready
                WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority = p.priority AND s.ready_at <= (SELECT store_now())
                ORDER BY s.ready_at LIMIT ?1) d CROSS JOIN runs r ON r.id = d.run_id WHERE {active(r)}),
           (SELECT min(d.ready_at) FROM (
                SELECT s.run_id, s.ready_at FROM steps s INDEXED BY steps_ready
                WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority = p.priority AND s.ready_at <= (SELECT store_now())
                ORDER BY s.ready_at LIMIT ?1) d CROSS JOIN runs r ON r.id = d.run_id WHERE {active(r)})
    FROM places p WHERE p.priority IS NOT NULL)
SELECT lane, sum(ready), min(since) FROM due WHERE ready > 0 GROUP BY lane

-- How many runs of each workflow and version wait for a scheduler, and since when. At most ?1 of each are counted.
-- name: pending_codes
WITH RECURSIVE kinds (workflow, version) AS (
    SELECT workflow, version FROM (SELECT workflow, version FROM runs INDEXED BY runs_pending WHERE state = 'pending'
                   ORDER BY workflow, version LIMIT 1)
    UNION ALL
    SELECT r.workflow, r.version FROM kinds k CROSS JOIN runs r ON r.rowid = coalesce(
        (SELECT n.rowid FROM runs n INDEXED BY runs_pending
         WHERE n.state = 'pending' AND n.workflow = k.workflow AND n.version > k.version ORDER BY n.version LIMIT 1),
        (SELECT n.rowid FROM runs n INDEXED BY runs_pending
         WHERE n.state = 'pending' AND n.workflow > k.workflow ORDER BY n.workflow, n.version LIMIT 1)))
SELECT k.workflow, k.version,
       (SELECT count(*) FROM (SELECT 1 FROM runs r INDEXED BY runs_pending
                              WHERE r.state = 'pending' AND r.workflow = k.workflow AND r.version = k.version LIMIT ?1)),
       (SELECT min(d.created_at) FROM (
            SELECT r.created_at FROM runs r INDEXED BY runs_pending
            WHERE r.state = 'pending' AND r.workflow = k.workflow AND r.version = k.version
            ORDER BY r.priority DESC, r.created_at LIMIT ?1) d)
FROM kinds k

-- Runs without a parent that ended in this state from ?2 to ?3 in the namespace ?4, or in all, the newest first.
-- name: ended_in
SELECT workflow, version, state, created_at, finished_at FROM runs INDEXED BY runs_ended
WHERE state = ?1 AND finished_at >= ?2 AND finished_at < ?3 AND finished_at IS NOT NULL
  AND (?4 IS NULL OR +namespace = ?4) AND (?5 IS NULL OR +workflow = ?5) AND +parent_id IS NULL
ORDER BY finished_at DESC LIMIT ?6

-- How many of them ended in each of these states on earlier days at the same time, counted up to ?7 each.
-- name: count_ended
SELECT d.value, u.value, (
    SELECT count(*) FROM (
        SELECT 1 FROM runs INDEXED BY runs_ended
        WHERE state = u.value AND finished_at >= ?3 - d.value * 86400 AND finished_at < ?4 - d.value * 86400
          AND finished_at IS NOT NULL AND (?5 IS NULL OR +namespace = ?5) AND (?6 IS NULL OR +workflow = ?6)
          AND +parent_id IS NULL LIMIT ?7))
FROM json_each(?1) d CROSS JOIN json_each(?2) u

-- How many runs of the namespace ?7 fit a filter, by state, counted up to ?6 in all, the newest first.
-- name: count_meant
SELECT m.state, count(*) FROM (
    SELECT state FROM runs INDEXED BY runs_newest
    WHERE namespace = ?7 AND (created_at, id) < (coalesce(?3, 1e18), coalesce(?4, '')) AND created_at >= coalesce(?8, -1e18)
      AND {is_meant(runs)} AND (?12 IS NULL OR (+id >= ?12 AND +id < ?13))
    ORDER BY created_at DESC, id DESC LIMIT ?6) m GROUP BY m.state
