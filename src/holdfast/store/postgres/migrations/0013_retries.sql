-- What a run that is the retry of another takes over from it.

-- The `here.key` of a step, where it is not its own run's and key: an effect that an earlier run may have had.
ALTER TABLE holdfast.steps ADD COLUMN effect text;

-- By the key of a step that the run has not asked for yet: the `here.key` it then has, or the run that its child goes on
-- from. Under the empty key: the run that the code takes itself for, whose dice it goes on throwing.
CREATE TABLE holdfast.inherited (
    run_id text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    effect text,
    child  text COLLATE "C",
    PRIMARY KEY (run_id, key)
);
CREATE INDEX inherited_child ON holdfast.inherited (child) WHERE child IS NOT NULL;

CREATE INDEX runs_retry ON holdfast.runs (retry_of, created_at) WHERE retry_of IS NOT NULL;
