-- Asks: questions to people, and their answers. Whoever ends an ask has locked its step first.

-- name: add_asks
INSERT INTO asks (id, namespace, run_id, n, workflow, question, form, show, quorum, not_by, plan, asked_at, expires_at, next_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, store_now(), store_now() + ?12, store_now() + ?13)

-- name: add_ask_people
INSERT INTO ask_people (ask, who, through, hops, since) VALUES (?1, ?2, ?3, ?4, store_now())
ON CONFLICT (ask, who) DO NOTHING

-- Ends the ask of a step, and closes it in all inboxes.
-- name: end_asks
UPDATE asks SET state = ?3, ended_at = store_now(), next_at = NULL WHERE run_id = ?1 AND n = ?2 AND state = 'open'

-- name: close_ask_people
UPDATE ask_people SET is_open = 0 WHERE ask = (SELECT id FROM asks WHERE run_id = ?1 AND n = ?2)

-- Ends a waiting step from outside.
-- name: answer_steps
UPDATE steps SET state = ?4, output = ?5, error = ?6, finished_at = store_now(), fence = fence + 1
WHERE run_id = ?1 AND n = ?2 AND fence = ?3 AND +state = 'waiting' AND +kind IN ('ask', 'callback')

-- SQLite has only one write transaction at a time, so the rows need no lock.
-- name: lock_ask_step
SELECT s.run_id, s.n, s.fence, s.state FROM asks a CROSS JOIN steps s ON s.run_id = a.run_id AND s.n = a.n WHERE a.id = ?1

-- name: lock_ask
SELECT {Ask} FROM asks WHERE id = ?1

-- name: ask
SELECT {Ask} FROM asks WHERE id = ?1

-- name: ask_people
SELECT {AskPerson(p)} FROM json_each(?1) u CROSS JOIN ask_people p ON p.ask = u.value ORDER BY p.ask, p.since, p.who

-- Records an answer, once for each person.
-- name: answer_ask
INSERT INTO ask_people (ask, who, through, since, value, note, via, answered_at)
VALUES (?1, ?2, ?3, store_now(), ?4, ?5, ?6, store_now())
ON CONFLICT (ask, who) DO UPDATE SET value = excluded.value, note = excluded.note, via = excluded.via,
                                     answered_at = excluded.answered_at, is_open = 0
WHERE answered_at IS NULL AND handed_to IS NULL
RETURNING answered_at

-- The place of a person goes to somebody else.
-- name: hand_ask_over
INSERT INTO ask_people (ask, who, through, hops, since, handed_to) VALUES (?1, ?2, ?3, ?4, store_now(), ?5)
ON CONFLICT (ask, who) DO UPDATE SET handed_to = excluded.handed_to, is_open = 0
WHERE answered_at IS NULL AND handed_to IS NULL

-- name: move_ask
UPDATE asks SET reached_at = ?2, next_at = ?3 WHERE id = ?1 AND state = 'open'

-- name: open_asks
SELECT {Ask} FROM asks INDEXED BY asks_open WHERE state = 'open' AND (asked_at, id) > (?2, ?3) AND (?1 IS NULL OR +namespace = ?1)
ORDER BY asked_at, id LIMIT ?4

-- name: ended_asks
SELECT {Ask} FROM asks INDEXED BY asks_ended WHERE state <> 'open' AND (ended_at, id) < (?2, ?3) AND (?1 IS NULL OR +namespace = ?1)
  AND (?4 IS NULL OR EXISTS (SELECT 1 FROM json_each(?4) u CROSS JOIN ask_people p ON p.ask = asks.id AND p.who = u.value))
ORDER BY ended_at DESC, id DESC LIMIT ?5

-- What is asked of one of these people or teams.
-- name: inbox
SELECT DISTINCT {Ask(a)} FROM json_each(?1) u
CROSS JOIN ask_people p INDEXED BY ask_inbox ON p.who = u.value AND p.is_open = 1
CROSS JOIN asks a ON a.id = p.ask
WHERE a.state = 'open' AND (a.asked_at, a.id) > (?3, ?4) AND (?2 IS NULL OR a.namespace = ?2)
ORDER BY a.asked_at, a.id LIMIT ?5

-- name: asks_of
SELECT {Ask} FROM asks WHERE run_id = ?1 ORDER BY n LIMIT ?2

-- name: due_asks
SELECT {Ask} FROM asks INDEXED BY asks_next WHERE state = 'open' AND next_at <= (SELECT store_now()) ORDER BY next_at LIMIT ?1

-- name: next_ask
SELECT next_at FROM asks INDEXED BY asks_next WHERE state = 'open' AND next_at IS NOT NULL ORDER BY next_at LIMIT 1
