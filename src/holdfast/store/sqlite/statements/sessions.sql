-- Sessions of browsers.

-- name: add_session
INSERT INTO sessions (digest, token, token_digest, made_at, expires_at)
VALUES (?1, ?2, ?3, store_now(), store_now() + ?4)
ON CONFLICT (digest) DO NOTHING

-- What has expired is as if it were not there.
-- name: session
SELECT token, token_digest, expires_at FROM sessions WHERE digest = ?1 AND expires_at > (SELECT store_now())

-- name: end_session
DELETE FROM sessions WHERE digest = ?1

-- name: end_oldest_sessions
DELETE FROM sessions WHERE digest IN (SELECT digest FROM sessions WHERE token = ?1 ORDER BY expires_at DESC, digest LIMIT -1 OFFSET ?2)

-- name: sweep_sessions
DELETE FROM sessions WHERE digest IN (SELECT digest FROM sessions WHERE expires_at <= (SELECT store_now()) ORDER BY expires_at LIMIT ?1)
