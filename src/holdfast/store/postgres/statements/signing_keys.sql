-- Keys that sign links.

-- name: signing_keys
SELECT id, secret FROM holdfast.signing_keys ORDER BY made_at DESC, id LIMIT 2

-- The first key is made when it is first needed. Of two processes that make it at once, one does: it always has this id.
-- name: add_first_signing_key
INSERT INTO holdfast.signing_keys (id, secret, made_at) SELECT $1, $2, clock_timestamp() WHERE NOT EXISTS (SELECT FROM holdfast.signing_keys)
ON CONFLICT (id) DO NOTHING
