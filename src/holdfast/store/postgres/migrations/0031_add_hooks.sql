-- Hooks: where webhooks come in. A secret must be kept as it is, because a signature is made with it. Somebody removes a hook;
-- so nobody prunes these rows.
CREATE TABLE holdfast.hooks (
    name       text COLLATE "C" NOT NULL PRIMARY KEY,
    namespace  text COLLATE "C" NOT NULL,
    scheme     text NOT NULL CHECK (scheme IN ('standard', 'github', 'stripe', 'hmac')),
    secret     bytea NOT NULL,
    old_secret bytea,
    old_until  timestamptz,
    header     text NOT NULL,
    actor      text NOT NULL,
    created_at timestamptz NOT NULL,
    rotated_at timestamptz,
    CONSTRAINT old_has_end CHECK ((old_secret IS NULL) = (old_until IS NULL))
);
CREATE INDEX hooks_in ON holdfast.hooks (namespace, name);
