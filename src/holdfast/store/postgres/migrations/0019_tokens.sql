-- Tokens: who may speak to a server. The secret itself is in no row, only its SHA-256. After a rotation, the old secret is
-- good until `old_until`. Nobody removes these rows: they are few, and the journal names them.
CREATE TABLE holdfast.tokens (
    id         text COLLATE "C" PRIMARY KEY,
    name       text NOT NULL,
    role       text NOT NULL,
    namespaces text NOT NULL,
    can        text NOT NULL,
    payloads   boolean NOT NULL,
    made_by    text NOT NULL,
    made_at    timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    used_at    timestamptz,
    digest     bytea NOT NULL,
    old_digest bytea,
    old_until  timestamptz
);
