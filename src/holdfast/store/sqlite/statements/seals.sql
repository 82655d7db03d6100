-- Sealed payloads. Resealing walks through each table by its primary key, and changes a row only if it is as it was read.

-- name: digest_key
SELECT body FROM seals WHERE name = 'digest'

-- name: add_digest_key
INSERT INTO seals (name, body) VALUES ('digest', ?1) ON CONFLICT (name) DO NOTHING

-- name: reseal_digest_key
UPDATE seals SET body = ?2 WHERE name = 'digest' AND body = ?1

-- What batches were given before there were keys is in their input once they have begun.
-- name: forget_items
UPDATE gathered SET items = NULL WHERE items IS NOT NULL AND (SELECT r.started_at FROM runs r WHERE r.id = run_id) IS NOT NULL

-- A batch that still gathers stays open: whoever begins it puts its items into its input.
-- name: sealed_runs
SELECT id, input, digest, output, CAST(published AS BLOB) FROM runs r
WHERE id > ?1 AND NOT EXISTS (SELECT 1 FROM gathered g INDEXED BY gathered_of WHERE g.run_id = r.id AND g.items IS NOT NULL)
ORDER BY id LIMIT ?2

-- name: reseal_runs
UPDATE runs SET input = ?6, digest = ?7, output = ?8, published = CAST(?9 AS TEXT)
WHERE id = ?1 AND input = ?2 AND digest = ?3 AND output IS ?4 AND published IS CAST(?5 AS TEXT)

-- name: sealed_gathered
SELECT id, digest FROM gathered WHERE id > ?1 ORDER BY id LIMIT ?2

-- name: reseal_gathered
UPDATE gathered SET digest = ?3 WHERE id = ?1 AND digest = ?2

-- name: sealed_steps
SELECT run_id, n, input, digest, output, checkpoint FROM steps WHERE (run_id, n) > (?1, ?2) ORDER BY run_id, n LIMIT ?3

-- name: reseal_steps
UPDATE steps SET input = ?7, digest = ?8, output = ?9, checkpoint = ?10
WHERE run_id = ?1 AND n = ?2 AND input IS ?3 AND digest IS ?4 AND output IS ?5 AND checkpoint IS ?6

-- name: sealed_signals
SELECT id, payload, reply FROM signals WHERE id > ?1 ORDER BY id LIMIT ?2

-- name: reseal_signals
UPDATE signals SET payload = ?4, reply = ?5 WHERE id = ?1 AND payload = ?2 AND reply IS ?3

-- name: sealed_asks
SELECT id, CAST(show AS BLOB) FROM asks WHERE id > ?1 ORDER BY id LIMIT ?2

-- name: reseal_asks
UPDATE asks SET show = CAST(?3 AS TEXT) WHERE id = ?1 AND show = CAST(?2 AS TEXT)

-- name: sealed_answers
SELECT ask, who, value FROM ask_people WHERE (ask, who) > (?1, ?2) ORDER BY ask, who LIMIT ?3

-- name: reseal_answers
UPDATE ask_people SET value = ?4 WHERE ask = ?1 AND who = ?2 AND value = ?3

-- name: sealed_logs
SELECT run_id, n, attempt, twin, part, body FROM logs WHERE (run_id, n, attempt, twin, part) > (?1, ?2, ?3, ?4, ?5)
ORDER BY run_id, n, attempt, twin, part LIMIT ?6

-- name: reseal_logs
UPDATE logs SET body = ?7 WHERE run_id = ?1 AND n = ?2 AND attempt = ?3 AND twin = ?4 AND part = ?5 AND body = ?6

-- name: sealed_events
SELECT namespace, source, id, data FROM events WHERE (namespace, source, id) > (?1, ?2, ?3)
ORDER BY namespace, source, id LIMIT ?4

-- name: reseal_events
UPDATE events SET data = ?5 WHERE namespace = ?1 AND source = ?2 AND id = ?3 AND data = ?4
