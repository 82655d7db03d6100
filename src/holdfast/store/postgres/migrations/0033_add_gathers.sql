-- Starts that one run takes: a debounced run has the newest input, and a batch the items of all. A key has one run that has
-- not begun. The row of a key is locked while a start is taken. Both are pruned with the run.
CREATE TABLE holdfast.gathers (
    key    text COLLATE "C" NOT NULL PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL,
    starts integer NOT NULL,
    items  integer NOT NULL,
    bytes  integer NOT NULL
);
CREATE INDEX gathers_of ON holdfast.gathers (run_id);

-- Each start that was taken, by the id that it would have had as a run of its own, so that it is taken once. In a batch it has
-- the items of the start, and the parameter that gets them.
CREATE TABLE holdfast.gathered (
    id        text COLLATE "C" NOT NULL PRIMARY KEY,
    run_id    text COLLATE "C" NOT NULL,
    n         integer NOT NULL,
    workflow  text NOT NULL,
    digest    bytea NOT NULL,
    parameter text NOT NULL,
    items     bytea
);
CREATE INDEX gathered_of ON holdfast.gathered (run_id, n);
