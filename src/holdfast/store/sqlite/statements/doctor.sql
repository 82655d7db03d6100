-- The invariants: each is a query that counts the rows which break it. The names are those of the guarantees.

-- name: doctor
SELECT 'I1', 'each key stands once in a run',
    (SELECT count(*) FROM (SELECT 1 FROM steps GROUP BY run_id, key HAVING count(*) > 1))
UNION ALL SELECT 'I2', 'an ended step has a fence above that of its last attempt',
    (SELECT count(*) FROM steps WHERE state IN ('succeeded', 'failed', 'cancelled') AND fence <= attempt)
UNION ALL SELECT 'I4', 'an active run nobody owns has something that can wake it or be delivered',
    (SELECT count(*) FROM runs r WHERE r.state IN ('running', 'undoing') AND r.owner IS NULL
     AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.run_id = r.id AND +s.delivered_seq IS NULL)
     AND NOT EXISTS (SELECT 1 FROM signals s WHERE s.run_id = r.id AND s.delivered_seq IS NULL))
UNION ALL SELECT 'I8', 'no step used more attempts than its budgets allow',
    (SELECT count(*) FROM steps WHERE kind = 'call'
     AND (spent > attempts_max OR timeouts > CASE WHEN json_valid(retry) THEN coalesce(json_extract(retry, '$.timeouts'), attempts_max) ELSE attempts_max END))
UNION ALL SELECT 'I9', 'an ended run has an end time, a live one has none',
    (SELECT count(*) FROM runs
     WHERE (state IN ('succeeded', 'failed', 'undone', 'cancelled')) <> (finished_at IS NOT NULL))
UNION ALL SELECT 'I10', 'a running step has an agent that is not retired',
    (SELECT count(*) FROM steps s LEFT JOIN nodes n ON n.id = s.agent
     WHERE s.state = 'running' AND (n.id IS NULL OR n.retired_at IS NOT NULL))
UNION ALL SELECT 'I10b', 'an owned run has an owner that is not retired',
    (SELECT count(*) FROM runs r LEFT JOIN nodes n ON n.id = r.owner
     WHERE r.owner IS NOT NULL AND (n.id IS NULL OR n.retired_at IS NOT NULL))
UNION ALL SELECT 'I23', 'an agent knows of every step that runs there for longer than its lease',
    (SELECT count(*) FROM (
        SELECT 1 FROM (SELECT id, json_extract(offers, '$.pulse') AS pulse FROM nodes WHERE retired_at IS NULL AND json_valid(offers)) n
        JOIN steps s ON s.agent = n.id AND s.state = 'running'
        WHERE s.started_at < json_extract(pulse, '$.at') - json_extract(pulse, '$.lease_s')
        GROUP BY n.id HAVING count(*) > json_extract(pulse, '$.known')))
UNION ALL SELECT 'I11', 'no two outcomes of one run share a place in its history',
    (SELECT count(*) FROM (SELECT 1 FROM steps WHERE delivered_seq > 0 AND kind <> 'signal'
     GROUP BY run_id, delivered_seq HAVING count(*) > 1))
UNION ALL SELECT 'I11b', 'only what has ended is delivered',
    (SELECT count(*) FROM steps WHERE delivered_seq IS NOT NULL AND state IN ('waiting', 'ready', 'running'))
UNION ALL SELECT 'I12', 'an ended run has no live step',
    (SELECT count(*) FROM steps s JOIN runs r ON r.id = s.run_id
     WHERE r.finished_at IS NOT NULL AND s.state IN ('waiting', 'ready', 'running'))
UNION ALL SELECT 'I19', 'what is in quarantine is listed there',
    (SELECT count(*) FROM steps s WHERE {quarantined(s)}
     AND NOT EXISTS (SELECT 1 FROM quarantine q WHERE q.run_id = s.run_id AND q.n = s.n))
UNION ALL SELECT 'I17', 'no step, twin, attempt, log or signal without its run',
    (SELECT count(*) FROM twins t WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = t.run_id)) +
    (SELECT count(*) FROM steps s WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = s.run_id))
    + (SELECT count(*) FROM attempts a WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = a.run_id))
    + (SELECT count(*) FROM signals s WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = s.run_id))
    + (SELECT count(*) FROM logs l WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = l.run_id))
UNION ALL SELECT 'I18', 'a waiting child step has its child, or a run that it joined',
    (SELECT count(*) FROM steps s WHERE s.kind = 'child' AND s.state = 'waiting' AND substr(s.key, 1, 5) <> 'undo:'
     AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.parent_id = s.run_id AND r.parent_n = s.n)
     AND NOT EXISTS (SELECT 1 FROM joins j WHERE j.waiter_id = s.run_id AND j.waiter_n = s.n))
UNION ALL SELECT 'I50', 'an open ask has a waiting step, and a waiting step of that kind an open ask',
    (SELECT count(*) FROM asks a WHERE a.state = 'open' AND NOT EXISTS (
         SELECT 1 FROM steps s WHERE s.run_id = a.run_id AND s.n = a.n AND s.kind = 'ask' AND s.state = 'waiting'))
    + (SELECT count(*) FROM steps s WHERE s.kind = 'ask' AND s.state = 'waiting' AND NOT EXISTS (
         SELECT 1 FROM asks a WHERE a.run_id = s.run_id AND a.n = s.n AND a.state = 'open'))
UNION ALL SELECT 'I50b', 'an answered ask has as many answers as it wants, and an open one fewer',
    (SELECT count(*) FROM asks a WHERE a.state IN ('open', 'answered') AND (a.state = 'answered') <> (
         (SELECT count(*) FROM ask_people p WHERE p.ask = a.id AND p.answered_at IS NOT NULL) >= a.quorum))
UNION ALL SELECT 'I24', 'a signal that was set aside is delivered, and no wait took it',
    (SELECT count(*) FROM signals g WHERE g.set_aside IS NOT NULL
     AND (coalesce(g.delivered_seq, 0) = 0 OR EXISTS (
         SELECT 1 FROM steps s WHERE s.run_id = g.run_id AND s.kind = 'signal' AND s.delivered_seq = g.delivered_seq)))
UNION ALL SELECT 'I27', 'no ended run has got an update that it left without an answer',
    (SELECT count(*) FROM signals g JOIN runs r ON r.id = g.run_id
     WHERE g.delivered_seq > 0 AND g.answer IS NULL AND substr(g.name, 1, 8) = '$update:' AND r.finished_at IS NOT NULL)
UNION ALL SELECT 'I18b', 'no step waits for a child that has ended',
    (SELECT count(*) FROM steps s JOIN runs r ON r.parent_id = s.run_id AND r.parent_n = s.n
     WHERE s.kind = 'child' AND s.state = 'waiting' AND r.finished_at IS NOT NULL)
UNION ALL SELECT 'I18c', 'a step that undoes a child has a child that knows of it and has not ended',
    (SELECT count(*) FROM steps s WHERE s.kind = 'child' AND s.state = 'waiting' AND substr(s.key, 1, 5) = 'undo:'
     AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.parent_id = s.run_id AND r.finished_at IS NULL
                     AND json_extract(CASE WHEN json_valid(r.error) THEN r.error END, '$.by_n') = s.n))
UNION ALL SELECT 'I44', 'a run, its code and its calls are in one namespace, and so are its parent and its lanes',
    (SELECT count(*) FROM runs r WHERE {namespace_of(r.workflow)} <> r.namespace
     OR EXISTS (SELECT 1 FROM runs p WHERE p.id = coalesce(r.parent_id, r.started_by) AND p.namespace <> r.namespace)) +
    (SELECT count(*) FROM steps s JOIN runs r ON r.id = s.run_id LEFT JOIN lanes l ON l.id = s.lane
     WHERE s.kind = 'call' AND ({namespace_of(s.name)} <> r.namespace
        OR (l.id IS NOT NULL AND ({namespace_of(l.name)} <> r.namespace OR {namespace_of(l.depends)} <> r.namespace))))
-- This reads only the newest runs, because there may be millions.
UNION ALL SELECT 'I26', 'what is recorded as JSON can be read' || coalesce(', but not all of run ' || min(id), ''), count(*) FROM (
    SELECT id FROM (SELECT id, input, output, tags, published, progress, error FROM runs ORDER BY created_at DESC LIMIT 10000) r
    WHERE NOT (json_valid(CAST(input AS TEXT)) AND coalesce(json_valid(CAST(output AS TEXT)), 1) AND json_valid(tags)
               AND json_valid(published) AND coalesce(json_valid(progress), 1) AND coalesce(json_valid(error), 1))
       OR EXISTS (SELECT 1 FROM steps s WHERE s.run_id = r.id
                  AND NOT (coalesce(json_valid(CAST(s.input AS TEXT)), 1) AND coalesce(json_valid(CAST(s.output AS TEXT)), 1)
                           AND coalesce(json_valid(s.progress), 1) AND coalesce(json_valid(s.error), 1)
                           AND coalesce(json_valid(s.retry), 1)))
       OR EXISTS (SELECT 1 FROM signals g WHERE g.run_id = r.id AND NOT json_valid(CAST(g.payload AS TEXT))))
