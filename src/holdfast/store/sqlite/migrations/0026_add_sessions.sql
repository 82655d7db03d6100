-- Sessions: browsers that have signed in with a token. `digest` is the SHA-256 of what the cookie says, and `token_digest` is
-- that of the token's secret: when the token gets another secret, its sessions end. Whoever signs in removes old ones.
CREATE TABLE sessions (
    digest       BLOB NOT NULL PRIMARY KEY,
    token        TEXT NOT NULL,
    token_digest BLOB NOT NULL,
    made_at      REAL NOT NULL,
    expires_at   REAL NOT NULL
) STRICT;
CREATE INDEX sessions_expiring ON sessions (expires_at);
