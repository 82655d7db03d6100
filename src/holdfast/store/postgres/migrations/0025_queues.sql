-- Queues: whom work is for, and which limits it is under. A queue is a number for (namespace, fair key, limits). 0 is none of
-- them. Rows are few and are made once: nobody removes them, because rows of runs and steps name them.
CREATE TABLE holdfast.queues (
    id         integer GENERATED ALWAYS AS IDENTITY (START WITH 16) PRIMARY KEY,
    key        text COLLATE "C" NOT NULL UNIQUE,
    fair       text COLLATE "C" NOT NULL,
    limits     text NOT NULL,
    rates      text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX queues_fair ON holdfast.queues (fair);

-- The weights of fair keys, by stored name. A key without a row has the weight 1.
CREATE TABLE holdfast.fairs (
    name   text COLLATE "C" PRIMARY KEY,
    weight integer NOT NULL CHECK (weight BETWEEN 1 AND 100),
    actor  text NOT NULL DEFAULT '',
    note   text NOT NULL DEFAULT '',
    set_at timestamptz NOT NULL
);

-- Limits and rates, by stored name. `declared` is the number in the code, `most` the one in force: an operator may have set
-- another, and the leader moves the number of an adaptive one. `tat` is the time before which a rate has no more tokens than
-- its burst, in seconds since the epoch.
CREATE TABLE holdfast.limits (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text COLLATE "C" NOT NULL UNIQUE,
    kind       text NOT NULL CHECK (kind IN ('limit', 'rate')),
    declared   integer NOT NULL,
    most       integer NOT NULL CHECK (most >= 0),
    per_s      float8,
    burst      integer,
    tat        float8 NOT NULL DEFAULT 0,
    adaptive   boolean NOT NULL DEFAULT false,
    is_set     boolean NOT NULL DEFAULT false,
    actor      text NOT NULL DEFAULT '',
    note       text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ok         bigint NOT NULL DEFAULT 0,
    failed     bigint NOT NULL DEFAULT 0,
    seconds    float8 NOT NULL DEFAULT 0,
    usual_s    float8,
    moved_at   timestamptz,
    CONSTRAINT rate_has_span CHECK ((kind = 'rate') = (per_s IS NOT NULL AND burst IS NOT NULL))
);
CREATE INDEX limits_adaptive ON holdfast.limits (id) WHERE adaptive;

-- What is under a limit says so in its own row. How much of a limit is in use is read from the rows that run.
ALTER TABLE holdfast.steps
    ADD COLUMN limit_a integer, ADD COLUMN limit_b integer, ADD COLUMN limit_c integer,
    ADD COLUMN weight_a integer, ADD COLUMN weight_b integer, ADD COLUMN weight_c integer;
CREATE INDEX steps_in_a ON holdfast.steps (limit_a, state, ready_at) WHERE finished_at IS NULL AND limit_a IS NOT NULL;
CREATE INDEX steps_in_b ON holdfast.steps (limit_b, state, ready_at) WHERE finished_at IS NULL AND limit_b IS NOT NULL;
CREATE INDEX steps_in_c ON holdfast.steps (limit_c, state, ready_at) WHERE finished_at IS NULL AND limit_c IS NOT NULL;
ALTER TABLE holdfast.runs
    ADD COLUMN fair text, ADD COLUMN under text,
    ADD COLUMN limit_a integer, ADD COLUMN limit_b integer, ADD COLUMN limit_c integer,
    ADD COLUMN weight_a integer, ADD COLUMN weight_b integer, ADD COLUMN weight_c integer;
CREATE INDEX runs_in_a ON holdfast.runs (limit_a, state) WHERE finished_at IS NULL AND limit_a IS NOT NULL;
CREATE INDEX runs_in_b ON holdfast.runs (limit_b, state) WHERE finished_at IS NULL AND limit_b IS NOT NULL;
CREATE INDEX runs_in_c ON holdfast.runs (limit_c, state) WHERE finished_at IS NULL AND limit_c IS NOT NULL;

-- The walk goes from queue to queue: each is one range. Those who look at all queues of a lane at once use `steps_queued`.
DROP INDEX holdfast.steps_ready;
CREATE INDEX steps_ready ON holdfast.steps (lane, priority DESC, queue, ready_at) WHERE state = 'ready';
CREATE INDEX steps_queued ON holdfast.steps (lane, ready_at) WHERE state = 'ready' AND queue > 0;
DROP INDEX holdfast.runs_pending;
CREATE INDEX runs_pending ON holdfast.runs (workflow, version, priority DESC, queue, created_at) WHERE state = 'pending';

-- A step with a queue, as a hop issues it.
CREATE TYPE holdfast.placed_step AS (
    run_id text, n integer, key text, kind text, name text, lane integer, state text, priority integer, ready_at float8,
    leased integer, attempts_max integer, timeout_s float8, input bytea, digest bytea, retry text, after_seq integer,
    queue integer, limit_a integer, limit_b integer, limit_c integer, weight_a integer, weight_b integer, weight_c integer);
