-- Tokens: who may speak to a server. The secret itself is in no row, only its SHA-256. After a rotation, the old secret is
-- good until `old_until`. Nobody removes these rows: they are few, and the journal names them.
CREATE TABLE tokens (
    id         TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    role       TEXT NOT NULL,
    namespaces TEXT NOT NULL,
    can        TEXT NOT NULL,
    payloads   INTEGER NOT NULL,
    made_by    TEXT NOT NULL,
    made_at    REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL,
    used_at    REAL,
    digest     BLOB NOT NULL,
    old_digest BLOB,
    old_until  REAL
) STRICT;
