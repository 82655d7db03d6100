-- Starts that one run takes: a debounced run has the newest input, and a batch the items of all. A key has one run that has
-- not begun. Both are pruned with the run.
CREATE TABLE gathers (
    key    TEXT NOT NULL PRIMARY KEY,
    run_id TEXT NOT NULL,
    starts INTEGER NOT NULL,
    items  INTEGER NOT NULL,
    bytes  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX gathers_of ON gathers (run_id);

-- Each start that was taken, by the id that it would have had as a run of its own, so that it is taken once. In a batch it has
-- the items of the start, and the parameter that gets them.
CREATE TABLE gathered (
    id        TEXT NOT NULL PRIMARY KEY,
    run_id    TEXT NOT NULL,
    n         INTEGER NOT NULL,
    workflow  TEXT NOT NULL,
    digest    BLOB NOT NULL,
    parameter TEXT NOT NULL,
    items     BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX gathered_of ON gathered (run_id, n);
