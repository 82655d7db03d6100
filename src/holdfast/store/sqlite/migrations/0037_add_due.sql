-- When a run or a step was promised to end. Nothing happens to what is late, but people are notified.
ALTER TABLE runs ADD COLUMN due_at REAL;
CREATE INDEX runs_due ON runs (due_at, id) WHERE due_at IS NOT NULL AND finished_at IS NULL;
ALTER TABLE steps ADD COLUMN due_at REAL;
CREATE INDEX steps_due ON steps (due_at, run_id, n) WHERE due_at IS NOT NULL AND finished_at IS NULL;
