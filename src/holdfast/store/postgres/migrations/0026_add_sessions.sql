-- Sessions: browsers that have signed in with a token. `digest` is the SHA-256 of what the cookie says, and `token_digest` is
-- that of the token's secret: when the token gets another secret, its sessions end. Whoever signs in removes old ones.
CREATE TABLE holdfast.sessions (
    digest       bytea NOT NULL PRIMARY KEY,
    token        text COLLATE "C" NOT NULL,
    token_digest bytea NOT NULL,
    made_at      timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL
);
CREATE INDEX sessions_expiring ON holdfast.sessions (expires_at);
