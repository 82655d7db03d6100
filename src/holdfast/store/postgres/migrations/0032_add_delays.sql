-- Runs that begin later. Until its time has come, a run is in the queue -1 - q instead of its queue q. Nobody claims from a
-- queue below 0, so a claim need not ask for the time, and never passes over those that wait.
ALTER TABLE holdfast.runs ADD COLUMN begin_at timestamptz;
CREATE INDEX runs_delayed ON holdfast.runs (begin_at) WHERE state = 'pending' AND queue < 0;
