-- Keys that sign links to people. The newest one signs, and all of them are good. Nobody prunes these rows.
CREATE TABLE signing_keys (
    id      TEXT NOT NULL PRIMARY KEY,
    secret  BLOB NOT NULL,
    made_at REAL NOT NULL
) STRICT;
