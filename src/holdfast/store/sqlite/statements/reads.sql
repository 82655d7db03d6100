-- What anybody may read.

-- name: run
SELECT {Run} FROM runs WHERE id = ?1

-- The class of the error that ended the run, or that made it stuck.
-- fragment: error_class(r)
json_extract(CASE WHEN json_valid(iif({r}.state = 'stuck', {r}.note, {r}.error))
                  THEN iif({r}.state = 'stuck', {r}.note, {r}.error) END, '$.type')

-- True for the page of a map that waits for no person. `PREFIX` of workflow/pages.py is the beginning of its input.
-- fragment: is_quiet_page(r)
({r}.parent_id IS NOT NULL AND substr({r}.input, 1, 9) = CAST('{"$page":' AS BLOB) AND +{r}.state NOT IN ('held', 'stuck'))

-- True if the run is open, and all that the list ?11 says: what became of its steps, and whether it is late.
-- fragment: is_so(r)
(?11 = '[]' OR ({r}.finished_at IS NULL AND NOT EXISTS (SELECT 1 FROM json_each(?11) w WHERE NOT CASE w.value
    WHEN 'late' THEN coalesce({r}.due_at <= (SELECT store_now()), 0)
    WHEN 'retrying' THEN EXISTS (
        SELECT 1 FROM steps s WHERE s.run_id = {r}.id AND +s.state = 'ready' AND s.attempt > 0 AND NOT {quarantined(s)})
    WHEN 'waiting-for-agent' THEN EXISTS (
        SELECT 1 FROM steps s WHERE s.run_id = {r}.id AND +s.state = 'ready' AND +s.ready_at <= (SELECT store_now()))
    WHEN 'waiting-for-breaker' THEN EXISTS (
        SELECT 1 FROM steps s CROSS JOIN lanes l ON l.id = s.lane CROSS JOIN breakers b ON b.name = l.depends
        WHERE s.run_id = {r}.id AND +s.state = 'ready' AND NOT {quarantined(s)} AND b.state <> 'closed')
    ELSE EXISTS (
        SELECT 1 FROM steps s WHERE s.run_id = {r}.id AND +s.state = 'waiting' AND 'waiting-for-' || s.kind = w.value) END)))

-- True if the run fits the filters: states, workflow, tags, namespace and class of its error, whether pages count, and what it is.
-- fragment: is_meant(r)
((?1 = '[]' OR +{r}.state IN (SELECT value FROM json_each(?1)))
 AND (?2 IS NULL OR +{r}.workflow = ?2 OR substr({r}.workflow, -length(?2) - 1) = '.' || ?2
      OR {r}.workflow = {r}.namespace || '//' || ?2)
 AND (?5 IS NULL OR (SELECT count(*) FROM json_each(?5) want JOIN json_each(coalesce({r}.tags, '{}')) have
                     ON have.key = want.key AND have.value = want.value) = (SELECT count(*) FROM json_each(?5)))
 AND (?7 IS NULL OR +{r}.namespace = ?7)
 AND (?9 IS NULL OR {error_class({r})} = ?9 OR substr({error_class({r})}, -length(?9) - 1) = '.' || ?9)
 AND (?10 OR NOT {is_quiet_page({r})}) AND {is_so({r})})

-- The namespaces that have runs. Each costs one look into the index.
-- name: namespaces
WITH RECURSIVE there (name) AS (
    SELECT (SELECT namespace FROM runs INDEXED BY runs_newest WHERE namespace > '' ORDER BY namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT r.namespace FROM runs r INDEXED BY runs_newest
            WHERE r.namespace > there.name ORDER BY r.namespace LIMIT 1)
    FROM there WHERE there.name IS NOT NULL)
SELECT name FROM there WHERE name IS NOT NULL LIMIT 10000

-- The newest runs of the namespace ?7 before the cursor (created_at, id), and not before ?8.
-- name: runs
SELECT {Run} FROM runs INDEXED BY runs_newest
WHERE namespace = ?7 AND (created_at, id) < (coalesce(?3, 1e18), coalesce(?4, '')) AND created_at >= coalesce(?8, -1e18) AND {is_meant(runs)}
ORDER BY created_at DESC, id DESC LIMIT ?6

-- The same, of those whose ids are between ?12 and ?13.
-- name: runs_beginning
SELECT {Run} FROM runs
WHERE id >= ?12 AND id < ?13 AND (+created_at, +id) < (coalesce(?3, 1e18), coalesce(?4, ''))
  AND +created_at >= coalesce(?8, -1e18) AND {is_meant(runs)}
ORDER BY created_at DESC, id DESC LIMIT ?6

-- The oldest runs of the namespace ?7 after the cursor (?12, ?13), not before ?8, and before (?3, ?4).
-- name: runs_oldest
SELECT {Run} FROM runs INDEXED BY runs_newest
WHERE namespace = ?7 AND (created_at, id) > (coalesce(?12, -1e18), coalesce(?13, '')) AND created_at < coalesce(?3, 1e18)
  AND +created_at >= coalesce(?8, -1e18) AND {is_meant(runs)}
ORDER BY created_at, id LIMIT ?6

-- The same, of those whose ids are between ?14 and ?15.
-- name: runs_beginning_oldest
SELECT {Run} FROM runs
WHERE id >= ?14 AND id < ?15 AND (+created_at, +id) > (coalesce(?12, -1e18), coalesce(?13, ''))
  AND +created_at < coalesce(?3, 1e18) AND +created_at >= coalesce(?8, -1e18) AND {is_meant(runs)}
ORDER BY created_at, id LIMIT ?6

-- name: ended_runs
SELECT {Run(r)} FROM json_each(?1) u CROSS JOIN runs r ON r.id = u.value
WHERE r.finished_at IS NOT NULL OR +r.state = 'stuck'

-- name: unknown_runs
SELECT u.value FROM json_each(?1) u WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = u.value)

-- name: run_traces
SELECT r.id, r.tags FROM json_each(?1) u CROSS JOIN runs r ON r.id = u.value WHERE r.tags IS NOT NULL

-- name: runs_by_state
SELECT namespace, state, count(*) FROM runs WHERE ?1 IS NULL OR namespace = ?1 GROUP BY namespace, state

-- name: steps
SELECT {Step} FROM steps WHERE run_id = ?1 AND n > ?2 ORDER BY n LIMIT ?3

-- The same without payloads, as the fields of a step's row. Of a child's result it has only what says that nothing was
-- undone.
-- name: bare_steps
SELECT run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, losses, excused, attempts_max,
       timeout_s, fence, agent, complete_by, NULL, NULL,
       CASE WHEN kind = 'child' AND length(output) = 5 THEN output END, error, NULL, NULL, NULL, delivered_seq,
       issued_at, started_at, finished_at, after_seq, timeouts, throttled, effect, queue
FROM steps WHERE run_id = ?1 AND n > ?2 ORDER BY n LIMIT ?3

-- The children of a run, by the steps that wait for them.
-- name: child_ids
SELECT parent_n, id FROM runs INDEXED BY runs_parent WHERE parent_id = ?1 AND parent_n IS NOT NULL

-- name: attempts
SELECT {Attempt} FROM attempts WHERE run_id = ?1 ORDER BY n, attempt, finished_at, rowid

-- In the order of the time at which each part begins, after the cursor (at, n, attempt, twin,
-- first_line).
-- name: logs
SELECT {Log} FROM logs INDEXED BY logs_in_time
WHERE run_id = ?1 AND (at, n, attempt, twin, first_line) > (?2, ?3, ?4, ?5, ?6)
ORDER BY at, n, attempt, twin, first_line LIMIT ?7

-- name: logs_of
SELECT {Log(l)} FROM json_each(?2) u CROSS JOIN logs l ON l.run_id = ?1 AND l.n = u.value
ORDER BY l.n, l.attempt, l.twin, l.first_line

-- name: log_counts
SELECT n, sum(lines) FROM logs WHERE run_id = ?1 GROUP BY n

-- name: signals
SELECT {Signal} FROM signals WHERE run_id = ?1 ORDER BY id

-- Those of these updates that are answered, or never will be: their run has ended, is gone, or is stuck while it undoes
-- itself.
-- name: answers
SELECT u.value, s.answer, s.reply, r.state FROM json_each(?1) u LEFT JOIN signals s ON s.id = u.value
LEFT JOIN runs r ON r.id = s.run_id
WHERE s.answer IS NOT NULL OR r.id IS NULL OR r.finished_at IS NOT NULL
   OR (r.state = 'stuck' AND r.ending IS NOT NULL)

-- name: started_runs
SELECT {Run} FROM runs INDEXED BY runs_started WHERE started_by = ?1 ORDER BY created_at, id

-- name: children
SELECT {Run} FROM runs INDEXED BY runs_parent WHERE parent_id = ?1 ORDER BY created_at, id

-- name: journal
SELECT {JournalEntry} FROM journal ORDER BY id DESC LIMIT ?1

-- name: journal_in
SELECT {JournalEntry} FROM journal INDEXED BY journal_in WHERE namespace = ?2 ORDER BY id DESC LIMIT ?1

-- The audit outlives its runs, and may be about an earlier run of this id. A node may have dated the run's beginning by a
-- clock of its own, so a minute before it counts, too.
-- name: journal_of_run
SELECT {JournalEntry} FROM journal INDEXED BY journal_of
WHERE run_id = ?1 AND (via IS NULL OR at >= (SELECT created_at - 60 FROM runs WHERE id = ?1)) ORDER BY id DESC LIMIT ?2

-- Rows of the journal that have what somebody looks for.
-- fragment: wanted(j)
    (?3 = '' OR instr(lower({j}.actor), lower(?3))) AND (?4 = '' OR instr(lower({j}.verb), lower(?4)))
  AND (?5 = '' OR {j}.via = ?5 OR (?5 = '*' AND {j}.via IS NOT NULL)) AND (?6 = '' OR {j}.request = ?6)

-- Among the newest ?2 rows, so that nobody makes the store read all of it.
-- name: journal_found
SELECT {JournalEntry(j)} FROM (SELECT {JournalEntry} FROM journal ORDER BY id DESC LIMIT ?2) j
WHERE {wanted(j)} ORDER BY j.id DESC LIMIT ?1

-- name: journal_found_in
SELECT {JournalEntry(j)} FROM (
    SELECT {JournalEntry} FROM journal INDEXED BY journal_in WHERE namespace = ?7 ORDER BY id DESC LIMIT ?2) j
WHERE {wanted(j)} ORDER BY j.id DESC LIMIT ?1
