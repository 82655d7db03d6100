-- What is added to the time since the host's start, to have the store's time. One row: see clock.py.
CREATE TABLE clock (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    boot   TEXT NOT NULL,
    anchor REAL NOT NULL
) STRICT;
