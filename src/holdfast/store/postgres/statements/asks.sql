-- Asks: questions to people, and their answers. Whoever ends an ask has locked its step first.

-- name: add_asks
INSERT INTO holdfast.asks (id, namespace, run_id, n, workflow, question, form, show, quorum, not_by, plan, asked_at,
                           expires_at, next_at)
SELECT u.id, u.namespace, u.run_id, u.n, u.workflow, u.question, u.form, u.show, u.quorum, u.not_by, u.plan, at,
       at + make_interval(secs => u.timeout_s), at + make_interval(secs => u.next_s)
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[], $9::int[],
            $10::text[], $11::text[], $12::float8[], $13::float8[])
     u(id, namespace, run_id, n, workflow, question, form, show, quorum, not_by, plan, timeout_s, next_s), clock_timestamp() at

-- name: add_ask_people
INSERT INTO holdfast.ask_people (ask, who, through, hops, since)
SELECT u.ask, u.who, u.through, u.hops, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) u(ask, who, through, hops)
ON CONFLICT (ask, who) DO NOTHING

-- Ends the ask of a step, and closes it in all inboxes.
-- name: end_asks
UPDATE holdfast.asks a SET state = u.state, ended_at = clock_timestamp(), next_at = NULL
FROM unnest($1::text[], $2::int[], $3::text[]) u(run_id, n, state)
WHERE a.run_id = u.run_id AND a.n = u.n AND a.state = 'open'

-- name: close_ask_people
UPDATE holdfast.ask_people p SET is_open = false
FROM unnest($1::text[], $2::int[]) u(run_id, n) JOIN holdfast.asks a ON a.run_id = u.run_id AND a.n = u.n
WHERE p.ask = a.id

-- Ends a waiting step from outside.
-- name: answer_steps
UPDATE holdfast.steps s SET state = u.state, fence = s.fence + 1, output = u.output, error = u.error,
                   finished_at = clock_timestamp()
FROM unnest($1::text[], $2::int[], $3::int[], $4::text[], $5::bytea[], $6::text[]) u(run_id, n, fence, state, output, error)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence AND s.state = 'waiting' AND s.kind IN ('ask', 'callback')

-- name: lock_ask_step
SELECT s.run_id, s.n, s.fence, s.state FROM holdfast.steps s
WHERE (s.run_id, s.n) = (SELECT a.run_id, a.n FROM holdfast.asks a WHERE a.id = $1) FOR UPDATE OF s

-- name: lock_ask
SELECT {Ask} FROM holdfast.asks WHERE id = $1 FOR UPDATE

-- name: ask
SELECT {Ask} FROM holdfast.asks WHERE id = $1

-- name: ask_people
SELECT {AskPerson} FROM holdfast.ask_people WHERE ask = ANY($1::text[]) ORDER BY ask, since, who

-- Records an answer, once for each person.
-- name: answer_ask
INSERT INTO holdfast.ask_people AS p (ask, who, through, since, value, note, via, answered_at)
SELECT $1, $2, $3, at, $4, $5, $6, at FROM clock_timestamp() at
ON CONFLICT (ask, who) DO UPDATE SET value = excluded.value, note = excluded.note, via = excluded.via,
                                     answered_at = excluded.answered_at, is_open = false
WHERE p.answered_at IS NULL AND p.handed_to IS NULL
RETURNING p.answered_at

-- The place of a person goes to somebody else.
-- name: hand_ask_over
INSERT INTO holdfast.ask_people AS p (ask, who, through, hops, since, handed_to)
VALUES ($1, $2, $3, $4, clock_timestamp(), $5)
ON CONFLICT (ask, who) DO UPDATE SET handed_to = excluded.handed_to, is_open = false
WHERE p.answered_at IS NULL AND p.handed_to IS NULL

-- name: move_ask
UPDATE holdfast.asks SET reached_at = $2, next_at = $3 WHERE id = $1 AND state = 'open'

-- name: open_asks
SELECT {Ask} FROM holdfast.asks WHERE state = 'open' AND (asked_at, id) > ($2::timestamptz, $3::text) AND ($1::text IS NULL OR namespace = $1)
ORDER BY asked_at, id LIMIT $4

-- name: ended_asks
SELECT {Ask(a)} FROM holdfast.asks a
WHERE a.state <> 'open' AND (a.ended_at, a.id) < ($2::timestamptz, $3::text) AND ($1::text IS NULL OR a.namespace = $1)
  AND ($4::text[] IS NULL OR EXISTS (SELECT 1 FROM holdfast.ask_people p WHERE p.ask = a.id AND p.who = ANY($4::text[])))
ORDER BY a.ended_at DESC, a.id DESC LIMIT $5

-- What is asked of one of these people or teams.
-- name: inbox
SELECT {Ask(a)} FROM holdfast.asks a
WHERE a.id IN (SELECT p.ask FROM holdfast.ask_people p WHERE p.is_open AND p.who = ANY($1::text[]))
  AND a.state = 'open' AND (a.asked_at, a.id) > ($3::timestamptz, $4::text) AND ($2::text IS NULL OR a.namespace = $2)
ORDER BY a.asked_at, a.id LIMIT $5

-- name: asks_of
SELECT {Ask} FROM holdfast.asks WHERE run_id = $1 ORDER BY n LIMIT $2

-- name: due_asks
SELECT {Ask} FROM holdfast.asks WHERE state = 'open' AND next_at <= clock_timestamp() ORDER BY next_at LIMIT $1

-- name: next_ask
SELECT next_at FROM holdfast.asks WHERE state = 'open' AND next_at IS NOT NULL ORDER BY next_at LIMIT 1
