-- Keys that sign links to people. The newest one signs, and all of them are good. Nobody prunes these rows.
CREATE TABLE holdfast.signing_keys (
    id      text COLLATE "C" NOT NULL PRIMARY KEY,
    secret  bytea NOT NULL,
    made_at timestamptz NOT NULL
);
