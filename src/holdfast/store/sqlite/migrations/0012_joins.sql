-- Steps that wait for a run which is not their run's child, until they are told how it ended. A child is found by its parent's
-- step.

CREATE TABLE joins (
    run_id    TEXT NOT NULL,
    waiter_id TEXT NOT NULL,
    waiter_n  INTEGER NOT NULL,
    PRIMARY KEY (waiter_id, waiter_n)
) STRICT;
CREATE INDEX joins_of ON joins (run_id);

DROP INDEX runs_parent;
CREATE INDEX runs_parent ON runs (parent_id, parent_n) WHERE parent_id IS NOT NULL;
