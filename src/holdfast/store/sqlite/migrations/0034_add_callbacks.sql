-- Callbacks that somebody must answer by a time.
CREATE INDEX steps_callbacks ON steps (complete_by) WHERE state = 'waiting' AND kind = 'callback' AND complete_by IS NOT NULL;

-- What holds for all processes on the store, such as where its servers are reached. Nobody prunes these few rows.
CREATE TABLE settings (
    name   TEXT NOT NULL PRIMARY KEY,
    value  TEXT NOT NULL,
    set_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
