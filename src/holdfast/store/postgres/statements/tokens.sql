-- Tokens. Secrets are compared by their digests, in Python and in constant time.

-- name: add_token
INSERT INTO holdfast.tokens (id, name, role, namespaces, can, payloads, made_by, made_at, expires_at, digest, who)
SELECT $1, $2, $3, $4, $5, $6, $7, at, at + make_interval(secs => $8), $9, $10 FROM clock_timestamp() at
ON CONFLICT (id) DO NOTHING

-- name: token
SELECT {Token} FROM holdfast.tokens WHERE id = $1

-- name: these_tokens
SELECT {Token} FROM holdfast.tokens WHERE id IN (SELECT unnest($1::text[]))

-- name: tokens
SELECT {Token} FROM holdfast.tokens ORDER BY made_at DESC, id LIMIT $1

-- The old secret is good for $3 more seconds. A token that is revoked or has expired gets no new one.
-- name: rotate_token
UPDATE holdfast.tokens SET old_digest = digest, old_until = clock_timestamp() + make_interval(secs => $3), digest = $2,
    expires_at = clock_timestamp() + coalesce(make_interval(secs => $4), expires_at - made_at), made_at = clock_timestamp()
WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())

-- name: revoke_token
UPDATE holdfast.tokens SET revoked_at = clock_timestamp() WHERE id = $1 AND revoked_at IS NULL

-- name: use_token
UPDATE holdfast.tokens SET used_at = clock_timestamp()
WHERE id = $1 AND (used_at IS NULL OR used_at < clock_timestamp() - make_interval(secs => $2))
