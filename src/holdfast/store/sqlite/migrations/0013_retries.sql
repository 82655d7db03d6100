-- What a run that is the retry of another takes over from it.

-- The `here.key` of a step, where it is not its own run's and key: an effect that an earlier run may have had.
ALTER TABLE steps ADD COLUMN effect TEXT;

-- By the key of a step that the run has not asked for yet: the `here.key` it then has, or the run that its child goes on
-- from. Under the empty key: the run that the code takes itself for, whose dice it goes on throwing.
CREATE TABLE inherited (
    run_id TEXT NOT NULL,
    key    TEXT NOT NULL,
    effect TEXT,
    child  TEXT,
    PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX inherited_child ON inherited (child) WHERE child IS NOT NULL;

CREATE INDEX runs_retry ON runs (retry_of, created_at) WHERE retry_of IS NOT NULL;
