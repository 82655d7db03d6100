-- When a run or a step was promised to end. Nothing happens to what is late, but people are notified.
ALTER TABLE holdfast.runs ADD COLUMN due_at timestamptz;
CREATE INDEX runs_due ON holdfast.runs (due_at, id) WHERE due_at IS NOT NULL AND finished_at IS NULL;
ALTER TABLE holdfast.steps ADD COLUMN due_at timestamptz;
CREATE INDEX steps_due ON holdfast.steps (due_at, run_id, n) WHERE due_at IS NOT NULL AND finished_at IS NULL;
