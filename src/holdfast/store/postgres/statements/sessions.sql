-- Sessions of browsers.

-- name: add_session
INSERT INTO holdfast.sessions (digest, token, token_digest, made_at, expires_at)
SELECT $1, $2, $3, at, at + make_interval(secs => $4) FROM clock_timestamp() at
ON CONFLICT (digest) DO NOTHING

-- What has expired is as if it were not there.
-- name: session
SELECT token, token_digest, expires_at FROM holdfast.sessions WHERE digest = $1 AND expires_at > clock_timestamp()

-- name: end_session
DELETE FROM holdfast.sessions WHERE digest = $1

-- If several browsers sign in with one token at once, it may keep too many sessions: the next sign-in ends them.
-- name: end_oldest_sessions
DELETE FROM holdfast.sessions WHERE digest = ANY (ARRAY(
    SELECT digest FROM holdfast.sessions WHERE token = $1
    ORDER BY expires_at DESC, digest OFFSET $2 FOR UPDATE SKIP LOCKED))

-- Somebody else who signs in now may remove the same ones: each leaves those of the other alone.
-- name: sweep_sessions
DELETE FROM holdfast.sessions WHERE digest = ANY (ARRAY(
    SELECT digest FROM holdfast.sessions WHERE expires_at <= statement_timestamp()
    ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))
