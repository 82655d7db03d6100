-- Tokens. Secrets are compared by their digests, in Python and in constant time.

-- name: add_token
INSERT INTO tokens (id, name, role, namespaces, can, payloads, made_by, made_at, expires_at, digest, who)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, store_now(), store_now() + ?8, ?9, ?10)
ON CONFLICT (id) DO NOTHING

-- name: token
SELECT {Token} FROM tokens WHERE id = ?1

-- name: these_tokens
SELECT {Token} FROM tokens WHERE id IN (SELECT value FROM json_each(?1))

-- name: tokens
SELECT {Token} FROM tokens ORDER BY made_at DESC, id LIMIT ?1

-- The old secret is good for ?3 more seconds. A token that is revoked or has expired gets no new one.
-- name: rotate_token
UPDATE tokens SET old_digest = digest, old_until = store_now() + ?3, digest = ?2,
    expires_at = store_now() + coalesce(?4, expires_at - made_at), made_at = store_now()
WHERE id = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > (SELECT store_now()))

-- name: revoke_token
UPDATE tokens SET revoked_at = store_now() WHERE id = ?1 AND revoked_at IS NULL

-- name: use_token
UPDATE tokens SET used_at = store_now() WHERE id = ?1 AND (used_at IS NULL OR used_at < (SELECT store_now() - ?2))
