-- The invariants: each is a query that counts the rows which break it. The names are those of the guarantees.

-- name: doctor
SELECT name, meaning, broken FROM (VALUES
    ('I2', 'an ended step has a fence above that of its last attempt',
     (SELECT count(*) FROM holdfast.steps s WHERE {has_ended(s)} AND s.fence <= s.attempt)),
    ('I4', 'an active run nobody owns has something that can wake it or be delivered',
     (SELECT count(*) FROM holdfast.runs r WHERE {active(r)} AND r.owner IS NULL
      AND NOT EXISTS (SELECT FROM holdfast.steps s WHERE s.run_id = r.id AND s.delivered_seq IS NULL)
      AND NOT EXISTS (SELECT FROM holdfast.signals s WHERE s.run_id = r.id AND s.delivered_seq IS NULL))),
    ('I9', 'an ended run has an end time, a live one has none',
     (SELECT count(*) FROM holdfast.runs WHERE (state IN ('succeeded', 'failed', 'undone', 'cancelled')) <> (finished_at IS NOT NULL))),
    ('I10', 'a running step has an agent that is not retired',
     (SELECT count(*) FROM holdfast.steps s LEFT JOIN holdfast.nodes n ON n.id = s.agent
      WHERE s.state = 'running' AND (n.id IS NULL OR n.retired_at IS NOT NULL))),
    ('I10b', 'an owned run has an owner that is not retired',
     (SELECT count(*) FROM holdfast.runs r LEFT JOIN holdfast.nodes n ON n.id = r.owner
      WHERE r.owner IS NOT NULL AND (n.id IS NULL OR n.retired_at IS NOT NULL))),
    ('I23', 'an agent knows of every step that runs there for longer than its lease',
     (SELECT count(*) FROM (
        SELECT 1 FROM (SELECT id, CASE WHEN holdfast.is_json(convert_to(offers, 'UTF8')) THEN offers::jsonb -> 'pulse' END AS pulse
              FROM holdfast.nodes WHERE retired_at IS NULL) n
        JOIN holdfast.steps s ON s.agent = n.id AND s.state = 'running'
        WHERE s.started_at < to_timestamp((pulse ->> 'at')::float8 - (pulse ->> 'lease_s')::float8)
        GROUP BY n.id, pulse HAVING count(*) > (pulse ->> 'known')::int) unknown)),
    ('I11', 'no two outcomes of one run share a place in its history',
     (SELECT count(*) FROM (SELECT 1 FROM holdfast.steps WHERE delivered_seq > 0 AND kind <> 'signal'
      GROUP BY run_id, delivered_seq HAVING count(*) > 1) twice)),
    ('I11b', 'only what has ended is delivered',
     (SELECT count(*) FROM holdfast.steps s WHERE s.delivered_seq IS NOT NULL AND NOT {has_ended(s)})),
    ('I12', 'an ended run has no live step',
     (SELECT count(*) FROM holdfast.steps s JOIN holdfast.runs r ON r.id = s.run_id
      WHERE r.finished_at IS NOT NULL AND s.state IN ('waiting', 'ready', 'running'))),
    ('I8', 'no step used more attempts than its budgets allow',
     (SELECT count(*) FROM holdfast.steps s WHERE s.kind = 'call' AND (holdfast.spent(s) > s.attempts_max
      OR s.timeouts > CASE WHEN holdfast.is_json(convert_to(s.retry, 'UTF8'))
          THEN coalesce((s.retry::json->>'timeouts')::int, s.attempts_max) ELSE s.attempts_max END))),
    ('I19', 'what is in quarantine is listed there',
     (SELECT count(*) FROM holdfast.steps s WHERE {quarantined(s)}
      AND NOT EXISTS (SELECT FROM holdfast.quarantine q WHERE q.run_id = s.run_id AND q.n = s.n))),
    ('I17', 'no step, twin, attempt, log or signal without its run',
     (SELECT count(*) FROM holdfast.twins t WHERE NOT EXISTS (SELECT FROM holdfast.runs r WHERE r.id = t.run_id)) +
     (SELECT count(*) FROM holdfast.steps s WHERE NOT EXISTS (SELECT FROM holdfast.runs r WHERE r.id = s.run_id))
     + (SELECT count(*) FROM holdfast.attempts a WHERE NOT EXISTS (SELECT FROM holdfast.runs r WHERE r.id = a.run_id))
     + (SELECT count(*) FROM holdfast.signals s WHERE NOT EXISTS (SELECT FROM holdfast.runs r WHERE r.id = s.run_id))
     + (SELECT count(*) FROM holdfast.logs l WHERE NOT EXISTS (SELECT FROM holdfast.runs r WHERE r.id = l.run_id))),
    ('I1', 'each key stands once in a run',
     (SELECT count(*) FROM (SELECT 1 FROM holdfast.steps GROUP BY run_id, key HAVING count(*) > 1) twice)),
    ('I50', 'an open ask has a waiting step, and a waiting step of that kind an open ask',
     (SELECT count(*) FROM holdfast.asks a WHERE a.state = 'open' AND NOT EXISTS (
          SELECT FROM holdfast.steps s WHERE s.run_id = a.run_id AND s.n = a.n AND s.kind = 'ask' AND s.state = 'waiting'))
     + (SELECT count(*) FROM holdfast.steps s WHERE s.kind = 'ask' AND s.state = 'waiting' AND NOT EXISTS (
          SELECT FROM holdfast.asks a WHERE a.run_id = s.run_id AND a.n = s.n AND a.state = 'open'))),
    ('I50b', 'an answered ask has as many answers as it wants, and an open one fewer',
     (SELECT count(*) FROM holdfast.asks a WHERE a.state IN ('open', 'answered') AND (a.state = 'answered') <> (
          (SELECT count(*) FROM holdfast.ask_people p WHERE p.ask = a.id AND p.answered_at IS NOT NULL) >= a.quorum))),
    ('I24', 'a signal that was set aside is delivered, and no wait took it',
     (SELECT count(*) FROM holdfast.signals g WHERE g.set_aside IS NOT NULL
      AND (coalesce(g.delivered_seq, 0) = 0 OR EXISTS (
          SELECT FROM holdfast.steps s
          WHERE s.run_id = g.run_id AND s.kind = 'signal' AND s.delivered_seq = g.delivered_seq)))),
    ('I18', 'a waiting child step has its child, or a run that it joined',
     (SELECT count(*) FROM holdfast.steps s WHERE s.kind = 'child' AND s.state = 'waiting' AND left(s.key, 5) <> 'undo:'
      AND NOT EXISTS (SELECT FROM holdfast.runs r WHERE r.parent_id = s.run_id AND r.parent_n = s.n)
      AND NOT EXISTS (SELECT FROM holdfast.joins j WHERE j.waiter_id = s.run_id AND j.waiter_n = s.n))),
    ('I27', 'no ended run has got an update that it left without an answer',
     (SELECT count(*) FROM holdfast.signals g JOIN holdfast.runs r ON r.id = g.run_id
      WHERE g.delivered_seq > 0 AND g.answer IS NULL AND left(g.name, 8) = '$update:' AND r.finished_at IS NOT NULL)),
    ('I18b', 'no step waits for a child that has ended',
     (SELECT count(*) FROM holdfast.steps s JOIN holdfast.runs r ON r.parent_id = s.run_id AND r.parent_n = s.n
      WHERE s.kind = 'child' AND s.state = 'waiting' AND r.finished_at IS NOT NULL)),
    ('I18c', 'a step that undoes a child has a child that knows of it and has not ended',
     (SELECT count(*) FROM holdfast.steps s WHERE s.kind = 'child' AND s.state = 'waiting' AND left(s.key, 5) = 'undo:'
      AND NOT EXISTS (SELECT FROM holdfast.runs r WHERE r.parent_id = s.run_id AND r.finished_at IS NULL
                      AND holdfast.is_json(convert_to(r.error, 'UTF8')) AND r.error::jsonb ->> 'by_n' = s.n::text))),
    ('I44', 'a run, its code and its calls are in one namespace, and so are its parent and its lanes',
     (SELECT count(*) FROM holdfast.runs r WHERE holdfast.namespace_of(r.workflow) <> r.namespace
      OR EXISTS (SELECT FROM holdfast.runs p WHERE p.id = coalesce(r.parent_id, r.started_by) AND p.namespace <> r.namespace)) +
     (SELECT count(*) FROM holdfast.steps s JOIN holdfast.runs r ON r.id = s.run_id LEFT JOIN holdfast.lanes l ON l.id = s.lane
      WHERE s.kind = 'call' AND (holdfast.namespace_of(s.name) <> r.namespace OR holdfast.namespace_of(l.name) <> r.namespace
                                 OR holdfast.namespace_of(l.depends) <> r.namespace)))
) facts(name, meaning, broken)
-- This reads only the newest runs, because there may be millions.
UNION ALL SELECT 'I26', 'what is recorded as JSON can be read' || coalesce(', but not all of run ' || min(id), ''), count(*) FROM (
    SELECT id FROM (SELECT id, input, output, tags, published, progress, error FROM holdfast.runs ORDER BY created_at DESC LIMIT 10000) r
    WHERE NOT (holdfast.is_json(input) AND holdfast.is_json(output) AND holdfast.is_json(convert_to(tags, 'UTF8'))
               AND holdfast.is_json(convert_to(published, 'UTF8')) AND holdfast.is_json(convert_to(progress, 'UTF8'))
               AND holdfast.is_json(convert_to(error, 'UTF8')))
       OR EXISTS (SELECT FROM holdfast.steps s WHERE s.run_id = r.id
                  AND NOT (holdfast.is_json(s.input) AND holdfast.is_json(s.output) AND holdfast.is_json(convert_to(s.progress, 'UTF8'))
                           AND holdfast.is_json(convert_to(s.error, 'UTF8')) AND holdfast.is_json(convert_to(s.retry, 'UTF8'))))
       OR EXISTS (SELECT FROM holdfast.signals g WHERE g.run_id = r.id AND NOT holdfast.is_json(g.payload))) unread
