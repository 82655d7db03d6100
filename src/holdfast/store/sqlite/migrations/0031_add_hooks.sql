-- Hooks: where webhooks come in. A secret must be kept as it is, because a signature is made with it. Somebody removes a hook;
-- so nobody prunes these rows.
CREATE TABLE hooks (
    name       TEXT NOT NULL PRIMARY KEY,
    namespace  TEXT NOT NULL,
    scheme     TEXT NOT NULL CHECK (scheme IN ('standard', 'github', 'stripe', 'hmac')),
    secret     BLOB NOT NULL,
    old_secret BLOB,
    old_until  REAL,
    header     TEXT NOT NULL,
    actor      TEXT NOT NULL,
    created_at REAL NOT NULL,
    rotated_at REAL,
    CONSTRAINT old_has_end CHECK ((old_secret IS NULL) = (old_until IS NULL))
) STRICT;
CREATE INDEX hooks_in ON hooks (namespace, name);
