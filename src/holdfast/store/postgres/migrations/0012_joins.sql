-- Steps that wait for a run which is not their run's child, until they are told how it ended. A child is found by its parent's
-- step.

CREATE TABLE holdfast.joins (
    run_id    text COLLATE "C" NOT NULL,
    waiter_id text COLLATE "C" NOT NULL,
    waiter_n  integer NOT NULL,
    PRIMARY KEY (waiter_id, waiter_n)
);
CREATE INDEX joins_of ON holdfast.joins (run_id);

DROP INDEX holdfast.runs_parent;
CREATE INDEX runs_parent ON holdfast.runs (parent_id, parent_n) WHERE parent_id IS NOT NULL;
