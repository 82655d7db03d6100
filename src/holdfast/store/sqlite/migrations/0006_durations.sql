-- How long things take, and what is done about a step that takes too long.

-- Counts by bucket (see sketch.py), added up from what the nodes counted. Not whole numbers: old counts are halved.
CREATE TABLE durations (
    name    TEXT NOT NULL,
    bucket  INTEGER NOT NULL,
    count   REAL NOT NULL,
    last_at REAL NOT NULL,
    PRIMARY KEY (name, bucket)
) STRICT, WITHOUT ROWID;

-- Twins of steps: at most one for each. A table of its own, so that nothing that reads a run's steps can meet one; what
-- an agent needs to execute it stands in the step's row. A twin that may begin or has begun is live.
CREATE TABLE twins (
    run_id     TEXT NOT NULL,
    n          INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('ready', 'running', 'won', 'outrun', 'failed', 'barred')),
    fence      INTEGER NOT NULL DEFAULT 0,
    step_fence INTEGER NOT NULL,
    lane       INTEGER NOT NULL,
    not_agent  TEXT,
    agent      TEXT,
    made_at    REAL NOT NULL,
    started_at REAL,
    ended_at   REAL,
    PRIMARY KEY (run_id, n),
    CONSTRAINT ended_twin_has_time CHECK ((state = 'ready' OR state = 'running') = (ended_at IS NULL))
) STRICT;
CREATE INDEX twins_live ON twins (lane, made_at) WHERE ended_at IS NULL;
