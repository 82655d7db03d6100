-- How long things take, and what is done about a step that takes too long.

-- Counts by bucket (see sketch.py), added up from what the nodes counted. Not whole numbers: old counts are halved.
CREATE TABLE holdfast.durations (
    name    text COLLATE "C" NOT NULL,
    bucket  integer NOT NULL,
    count   double precision NOT NULL,
    last_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, bucket)
) WITH (fillfactor = 70);

-- Twins of steps: at most one for each. A table of its own, so that nothing that reads a run's steps can meet one; what
-- an agent needs to execute it stands in the step's row. A twin that may begin or has begun is live.
CREATE TABLE holdfast.twins (
    run_id     text COLLATE "C" NOT NULL,
    n          integer NOT NULL,
    state      text NOT NULL CHECK (state IN ('ready', 'running', 'won', 'outrun', 'failed', 'barred')),
    fence      integer NOT NULL DEFAULT 0,
    step_fence integer NOT NULL,
    lane       integer NOT NULL,
    not_agent  text,
    agent      text,
    made_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    ended_at   timestamptz,
    PRIMARY KEY (run_id, n),
    CONSTRAINT ended_twin_has_time CHECK ((state = 'ready' OR state = 'running') = (ended_at IS NULL))
);
CREATE INDEX twins_live ON holdfast.twins (lane, made_at) WHERE ended_at IS NULL;
