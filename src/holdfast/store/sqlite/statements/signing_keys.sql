-- Keys that sign links.

-- name: signing_keys
SELECT id, secret FROM signing_keys ORDER BY made_at DESC, id LIMIT 2

-- The first key is made when it is first needed. Of two processes that make it at once, one does.
-- name: add_first_signing_key
INSERT INTO signing_keys (id, secret, made_at) SELECT ?1, ?2, store_now() WHERE NOT EXISTS (SELECT 1 FROM signing_keys)
ON CONFLICT (id) DO NOTHING
