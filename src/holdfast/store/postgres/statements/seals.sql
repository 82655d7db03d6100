-- Sealed payloads. Resealing walks through each table by its primary key, and changes a row only if it is as it was read.

-- name: digest_key
SELECT body FROM holdfast.seals WHERE name = 'digest'

-- name: add_digest_key
INSERT INTO holdfast.seals (name, body) VALUES ('digest', $1) ON CONFLICT (name) DO NOTHING

-- name: reseal_digest_key
UPDATE holdfast.seals SET body = $2 WHERE name = 'digest' AND body = $1

-- What batches were given before there were keys is in their input once they have begun.
-- name: forget_items
UPDATE holdfast.gathered g SET items = NULL FROM holdfast.runs r
WHERE g.items IS NOT NULL AND r.id = g.run_id AND r.started_at IS NOT NULL

-- A batch that still gathers stays open: whoever begins it puts its items into its input.
-- name: sealed_runs
SELECT id, input, digest, output, convert_to(published, 'UTF8') FROM holdfast.runs r
WHERE id > $1 AND NOT EXISTS (SELECT 1 FROM holdfast.gathered g WHERE g.run_id = r.id AND g.items IS NOT NULL)
ORDER BY id LIMIT $2

-- Others lock a run and then runs below it, in an order that a walk does not have. So of several rows, those that somebody has
-- locked are left out. One row alone is waited for.
-- name: reseal_runs
UPDATE holdfast.runs r SET input = u.input, digest = u.digest, output = u.output, published = convert_from(u.published, 'UTF8')
FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[])
    u(id, old_input, old_digest, old_output, old_published, input, digest, output, published)
WHERE r.id = u.id AND r.input = u.old_input AND r.digest = u.old_digest AND r.output IS NOT DISTINCT FROM u.old_output
    AND r.published IS NOT DISTINCT FROM convert_from(u.old_published, 'UTF8')
    AND (cardinality($1::text[]) = 1
         OR r.id IN (SELECT l.id FROM holdfast.runs l WHERE l.id = ANY($1::text[]) FOR NO KEY UPDATE SKIP LOCKED))

-- name: sealed_gathered
SELECT id, digest FROM holdfast.gathered WHERE id > $1 ORDER BY id LIMIT $2

-- name: reseal_gathered
UPDATE holdfast.gathered g SET digest = u.digest
FROM unnest($1::text[], $2::bytea[], $3::bytea[]) u(id, old_digest, digest)
WHERE g.id = u.id AND g.digest = u.old_digest

-- name: sealed_steps
SELECT run_id, n, input, digest, output, checkpoint FROM holdfast.steps WHERE (run_id, n) > ($1, $2) ORDER BY run_id, n LIMIT $3

-- name: reseal_steps
UPDATE holdfast.steps s SET input = u.input, digest = u.digest, output = u.output, checkpoint = u.checkpoint
FROM unnest($1::text[], $2::int[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bytea[])
    u(run_id, n, old_input, old_digest, old_output, old_checkpoint, input, digest, output, checkpoint)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.input IS NOT DISTINCT FROM u.old_input AND s.digest IS NOT DISTINCT FROM u.old_digest
    AND s.output IS NOT DISTINCT FROM u.old_output AND s.checkpoint IS NOT DISTINCT FROM u.old_checkpoint

-- name: sealed_signals
SELECT id, payload, reply FROM holdfast.signals WHERE id > $1 ORDER BY id LIMIT $2

-- name: reseal_signals
UPDATE holdfast.signals g SET payload = u.payload, reply = u.reply
FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[]) u(id, old_payload, old_reply, payload, reply)
WHERE g.id = u.id AND g.payload = u.old_payload AND g.reply IS NOT DISTINCT FROM u.old_reply

-- name: sealed_asks
SELECT id, convert_to(show, 'UTF8') FROM holdfast.asks WHERE id > $1 ORDER BY id LIMIT $2

-- name: reseal_asks
UPDATE holdfast.asks a SET show = convert_from(u.show, 'UTF8')
FROM unnest($1::text[], $2::bytea[], $3::bytea[]) u(id, old_show, show)
WHERE a.id = u.id AND a.show = convert_from(u.old_show, 'UTF8')

-- name: sealed_answers
SELECT ask, who, value FROM holdfast.ask_people WHERE (ask, who) > ($1, $2) ORDER BY ask, who LIMIT $3

-- name: reseal_answers
UPDATE holdfast.ask_people p SET value = u.value
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[]) u(ask, who, old_value, value)
WHERE p.ask = u.ask AND p.who = u.who AND p.value = u.old_value

-- name: sealed_logs
SELECT run_id, n, attempt, twin, part, body FROM holdfast.logs WHERE (run_id, n, attempt, twin, part) > ($1, $2, $3, $4, $5)
ORDER BY run_id, n, attempt, twin, part LIMIT $6

-- name: reseal_logs
UPDATE holdfast.logs l SET body = u.body
FROM unnest($1::text[], $2::int[], $3::int[], $4::boolean[], $5::int[], $6::bytea[], $7::bytea[])
    u(run_id, n, attempt, twin, part, old_body, body)
WHERE l.run_id = u.run_id AND l.n = u.n AND l.attempt = u.attempt AND l.twin = u.twin AND l.part = u.part AND l.body = u.old_body

-- name: sealed_events
SELECT namespace, source, id, data FROM holdfast.events WHERE (namespace, source, id) > ($1, $2, $3)
ORDER BY namespace, source, id LIMIT $4

-- name: reseal_events
UPDATE holdfast.events e SET data = u.data
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bytea[]) u(namespace, source, id, old_data, data)
WHERE e.namespace = u.namespace AND e.source = u.source AND e.id = u.id AND e.data = u.old_data
