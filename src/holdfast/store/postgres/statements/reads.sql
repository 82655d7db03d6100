-- What anybody may read.

-- name: store_now
SELECT clock_timestamp()

-- name: run
SELECT {Run} FROM holdfast.runs WHERE id = $1

-- The class of the error that ended the run, or that made it stuck.
-- fragment: error_class(r)
(CASE WHEN {r}.state = 'stuck' THEN CASE WHEN holdfast.is_json(convert_to({r}.note, 'UTF8')) THEN {r}.note::jsonb ->> 'type' END
      WHEN holdfast.is_json(convert_to({r}.error, 'UTF8')) THEN {r}.error::jsonb ->> 'type' END)

-- True for the page of a map that waits for no person. `PREFIX` of workflow/pages.py is the beginning of its input.
-- fragment: is_quiet_page(r)
({r}.parent_id IS NOT NULL AND {r}.state NOT IN ('held', 'stuck') AND substring({r}.input FROM 1 FOR 9) = '{"$page":'::bytea)

-- True if the run is open, and all that the list $11 says: what became of its steps, and whether it is late.
-- fragment: is_so(r)
(cardinality($11::text[]) = 0 OR ({r}.finished_at IS NULL AND NOT EXISTS (SELECT 1 FROM unnest($11) w (word) WHERE NOT CASE w.word
    WHEN 'late' THEN coalesce({r}.due_at <= clock_timestamp(), false)
    WHEN 'retrying' THEN EXISTS (
        SELECT 1 FROM holdfast.steps s WHERE s.run_id = {r}.id AND s.state = 'ready' AND s.attempt > 0 AND NOT {quarantined(s)})
    WHEN 'waiting-for-agent' THEN EXISTS (
        SELECT 1 FROM holdfast.steps s WHERE s.run_id = {r}.id AND s.state = 'ready' AND s.ready_at <= clock_timestamp())
    WHEN 'waiting-for-breaker' THEN EXISTS (
        SELECT 1 FROM holdfast.steps s JOIN holdfast.lanes l ON l.id = s.lane JOIN holdfast.breakers b ON b.name = l.depends
        WHERE s.run_id = {r}.id AND s.state = 'ready' AND NOT {quarantined(s)} AND b.state <> 'closed')
    ELSE EXISTS (
        SELECT 1 FROM holdfast.steps s WHERE s.run_id = {r}.id AND s.state = 'waiting' AND 'waiting-for-' || s.kind = w.word) END)))

-- True if the run fits the filters: states, workflow, tags, namespace and class of its error, whether pages count, and what it is.
-- Most runs have no error, and looking into one is slow.
-- fragment: is_meant(r)
((cardinality($1::text[]) = 0 OR {r}.state = ANY($1))
 AND ($2::text IS NULL OR {r}.workflow = $2 OR right({r}.workflow, length($2) + 1) = '.' || $2
      OR {r}.workflow = {r}.namespace || '//' || $2)
 AND ($5::jsonb IS NULL OR {r}.tags::jsonb @> $5)
 AND ($7::text IS NULL OR {r}.namespace = $7)
 AND ($9::text IS NULL OR (({r}.error IS NOT NULL OR {r}.state = 'stuck')
      AND ({error_class({r})} = $9 OR right({error_class({r})}, length($9) + 1) = '.' || $9)))
 AND ($10::boolean OR NOT {is_quiet_page({r})}) AND {is_so({r})})

-- The namespaces that have runs. Each costs one look into the index.
-- name: namespaces
WITH RECURSIVE there(name) AS (
    (SELECT namespace FROM holdfast.runs WHERE namespace > '' ORDER BY namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT r.namespace FROM holdfast.runs r WHERE r.namespace > there.name ORDER BY r.namespace LIMIT 1)
    FROM there WHERE there.name IS NOT NULL)
SELECT name FROM there WHERE name IS NOT NULL LIMIT 10000

-- The newest runs of the namespace $7 before the cursor (created_at, id), and not before $8.
-- name: runs
SELECT {Run} FROM holdfast.runs
WHERE namespace = $7 AND (created_at, id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, ''))
  AND created_at >= coalesce($8::timestamptz, '-infinity') AND {is_meant(runs)}
ORDER BY created_at DESC, id DESC LIMIT $6

-- The same, of those whose ids are between $12 and $13. OFFSET 0 keeps the planner from reading the runs by their time.
-- name: runs_beginning
SELECT {Run(r)} FROM (SELECT {Run} FROM holdfast.runs WHERE id >= $12 AND id < $13 OFFSET 0) r
WHERE (r.created_at, r.id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, ''))
  AND r.created_at >= coalesce($8::timestamptz, '-infinity') AND {is_meant(r)}
ORDER BY r.created_at DESC, r.id DESC LIMIT $6

-- The oldest runs of the namespace $7 after the cursor ($12, $13), not before $8, and before ($3, $4).
-- name: runs_oldest
SELECT {Run} FROM holdfast.runs
WHERE namespace = $7 AND (created_at, id) > (coalesce($12::timestamptz, '-infinity'), coalesce($13::text, ''))
  AND (created_at, id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, '')) AND created_at >= coalesce($8::timestamptz, '-infinity')
  AND {is_meant(runs)}
ORDER BY created_at, id LIMIT $6

-- The same, of those whose ids are between $14 and $15.
-- name: runs_beginning_oldest
SELECT {Run(r)} FROM (SELECT {Run} FROM holdfast.runs WHERE id >= $14 AND id < $15 OFFSET 0) r
WHERE (r.created_at, r.id) > (coalesce($12::timestamptz, '-infinity'), coalesce($13::text, ''))
  AND (r.created_at, r.id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, '')) AND r.created_at >= coalesce($8::timestamptz, '-infinity')
  AND {is_meant(r)}
ORDER BY r.created_at, r.id LIMIT $6

-- name: ended_runs
SELECT {Run(r)} FROM unnest($1::text[]) u(id)
CROSS JOIN LATERAL (
    SELECT {Run} FROM holdfast.runs WHERE id = u.id AND (finished_at IS NOT NULL OR state = 'stuck') OFFSET 0) r

-- name: run_traces
SELECT r.id, r.tags FROM unnest($1::text[]) u(id)
CROSS JOIN LATERAL (SELECT id, tags FROM holdfast.runs WHERE id = u.id AND tags IS NOT NULL OFFSET 0) r

-- name: unknown_runs
SELECT u.id FROM unnest($1::text[]) u(id)
LEFT JOIN LATERAL (SELECT id FROM holdfast.runs WHERE id = u.id OFFSET 0) r ON true
WHERE r.id IS NULL

-- name: runs_by_state
SELECT namespace, state, count(*) FROM holdfast.runs WHERE $1::text IS NULL OR namespace = $1 GROUP BY namespace, state

-- name: steps
SELECT {Step} FROM holdfast.steps WHERE run_id = $1 AND n > $2 ORDER BY n LIMIT $3

-- The same without payloads, as the fields of a step's row. Of a child's result it has only what says that nothing was
-- undone.
-- name: bare_steps
SELECT run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, losses, excused, attempts_max,
       timeout_s, fence, agent, complete_by, NULL::bytea, NULL::bytea,
       CASE WHEN kind = 'child' AND length(output) = 5 THEN output END, error, NULL::text, NULL::bytea, NULL::text,
       delivered_seq, issued_at, started_at, finished_at, after_seq, timeouts, throttled, effect, queue
FROM holdfast.steps WHERE run_id = $1 AND n > $2 ORDER BY n LIMIT $3

-- The children of a run, by the steps that wait for them.
-- name: child_ids
SELECT parent_n, id FROM holdfast.runs WHERE parent_id = $1 AND parent_n IS NOT NULL

-- name: attempts
SELECT {Attempt} FROM holdfast.attempts WHERE run_id = $1 ORDER BY n, attempt, finished_at

-- In the order of the time at which each part begins, after the cursor (at, n, attempt, twin,
-- first_line).
-- name: logs
SELECT {Log} FROM holdfast.logs
WHERE run_id = $1 AND (at, n, attempt, twin, first_line) > ($2, $3, $4, $5, $6)
ORDER BY at, n, attempt, twin, first_line LIMIT $7

-- name: logs_of
SELECT {Log} FROM holdfast.logs WHERE run_id = $1 AND n = ANY($2::int[]) ORDER BY n, attempt, twin, first_line

-- name: log_counts
SELECT n, sum(lines) FROM holdfast.logs WHERE run_id = $1 GROUP BY n

-- name: signals
SELECT {Signal} FROM holdfast.signals WHERE run_id = $1 ORDER BY id

-- Those of these updates that are answered, or never will be: their run has ended, is gone, or is stuck while it undoes
-- itself.
-- name: answers
SELECT u.id, s.answer, s.reply, r.state FROM unnest($1::bigint[]) u(id) LEFT JOIN holdfast.signals s ON s.id = u.id
LEFT JOIN holdfast.runs r ON r.id = s.run_id
WHERE s.answer IS NOT NULL OR r.id IS NULL OR r.finished_at IS NOT NULL
   OR (r.state = 'stuck' AND r.ending IS NOT NULL)

-- name: started_runs
SELECT {Run} FROM holdfast.runs WHERE started_by = $1 ORDER BY created_at, id

-- name: children
SELECT {Run} FROM holdfast.runs WHERE parent_id = $1 ORDER BY created_at, id

-- name: journal
SELECT {JournalEntry} FROM holdfast.journal ORDER BY id DESC LIMIT $1

-- name: journal_in
SELECT {JournalEntry} FROM holdfast.journal WHERE namespace = $2 ORDER BY id DESC LIMIT $1

-- The audit outlives its runs, and may be about an earlier run of this id. A node may have dated the run's beginning by a
-- clock of its own, so a minute before it counts, too.
-- name: journal_of_run
SELECT {JournalEntry} FROM holdfast.journal
WHERE run_id = $1 AND (via IS NULL OR at >= (SELECT created_at - interval '1 minute' FROM holdfast.runs WHERE id = $1))
ORDER BY id DESC LIMIT $2

-- Rows of the journal that have what somebody looks for.
-- fragment: wanted(j)
    ($3::text = '' OR position(lower($3) IN lower({j}.actor)) > 0) AND ($4::text = '' OR position(lower($4) IN lower({j}.verb)) > 0)
  AND ($5::text = '' OR {j}.via = $5 OR ($5 = '*' AND {j}.via IS NOT NULL)) AND ($6::text = '' OR {j}.request = $6)

-- Among the newest $2 rows, so that nobody makes the store read all of it.
-- name: journal_found
SELECT {JournalEntry(j)} FROM (SELECT {JournalEntry} FROM holdfast.journal ORDER BY id DESC LIMIT $2) j
WHERE {wanted(j)} ORDER BY j.id DESC LIMIT $1

-- name: journal_found_in
SELECT {JournalEntry(j)} FROM (
    SELECT {JournalEntry} FROM holdfast.journal WHERE namespace = $7 ORDER BY id DESC LIMIT $2) j
WHERE {wanted(j)} ORDER BY j.id DESC LIMIT $1
