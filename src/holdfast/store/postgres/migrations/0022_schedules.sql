-- Schedules: at which times runs start. `cursor` is the newest time that has a fate, and `next_at` is when there is something
-- to decide. `plan` is what is written about the schedule, as JSON. Somebody removes a schedule, or the code that declares
-- it no longer has it; so nobody prunes these rows.
CREATE TABLE holdfast.schedules (
    name       text COLLATE "C" NOT NULL PRIMARY KEY,
    namespace  text NOT NULL DEFAULT 'default',
    origin     text NOT NULL DEFAULT '',
    workflow   text NOT NULL,
    version    text NOT NULL,
    input      bytea NOT NULL,
    digest     bytea NOT NULL,
    priority   integer NOT NULL DEFAULT 0,
    tags       text,
    timeout_s  float8,
    plan       text NOT NULL,
    state      text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'ended')),
    note       text NOT NULL DEFAULT '',
    actor      text NOT NULL DEFAULT '',
    cursor     timestamptz NOT NULL,
    next_at    timestamptz,
    fence      integer NOT NULL DEFAULT 0,
    failures   integer NOT NULL DEFAULT 0,
    started    integer NOT NULL DEFAULT 0,
    last_run   text,
    last_at    timestamptz,
    tzdata     text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT active_has_time CHECK (state <> 'active' OR next_at IS NOT NULL)
);
CREATE INDEX schedules_due ON holdfast.schedules (next_at) WHERE state = 'active';
CREATE INDEX schedules_origin ON holdfast.schedules (origin);

-- What became of the times of schedules. Several times that were missed together are one row, from `at` to `last_at`. The
-- leader removes old ones (`keep_fires_days`).
CREATE TABLE holdfast.fires (
    schedule   text COLLATE "C" NOT NULL,
    at         timestamptz NOT NULL,
    repeat     integer NOT NULL DEFAULT 1,
    fate       text NOT NULL CHECK (fate IN ('started', 'buffered', 'skipped', 'missed', 'replaced')),
    run_id     text COLLATE "C",
    why        text NOT NULL DEFAULT '',
    decided_at timestamptz NOT NULL,
    backfill   text COLLATE "C",
    last_at    timestamptz NOT NULL,
    times      integer NOT NULL DEFAULT 1,
    ended      boolean NOT NULL,
    counted    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (schedule, at, repeat),
    CONSTRAINT started_has_run CHECK ((fate = 'started') = (run_id IS NOT NULL)),
    CONSTRAINT waiting_is_open CHECK (fate IN ('started', 'buffered') OR ended)
);
CREATE INDEX fires_open ON holdfast.fires (schedule, at, repeat) WHERE NOT ended;
CREATE INDEX fires_decided ON holdfast.fires (decided_at) WHERE ended;

-- Times of a schedule in a span that are run again, or for the first time. The leader removes old ones with the fires.
CREATE TABLE holdfast.backfills (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    schedule     text COLLATE "C" NOT NULL,
    from_at      timestamptz NOT NULL,
    to_at        timestamptz NOT NULL,
    newest_first boolean NOT NULL,
    most         integer NOT NULL,
    again        text NOT NULL CHECK (again IN ('none', 'failed', 'all')),
    state        text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'stopped')),
    cursor       timestamptz,
    started      integer NOT NULL DEFAULT 0,
    passed       integer NOT NULL DEFAULT 0,
    actor        text NOT NULL,
    note         text NOT NULL DEFAULT '',
    fence        integer NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    CONSTRAINT ended_has_time CHECK ((state = 'running') = (ended_at IS NULL))
);
CREATE INDEX backfills_running ON holdfast.backfills (created_at) WHERE state = 'running';
CREATE INDEX backfills_of ON holdfast.backfills (schedule, created_at);

-- The sets of schedules that code declares: all lines of one application, as JSON. The set in force is the one first seen
-- last among those of live nodes. The leader removes sets that no live node has (`keep_workflows_days`).
CREATE TABLE holdfast.declared (
    origin     text COLLATE "C" NOT NULL,
    digest     text COLLATE "C" NOT NULL,
    body       text NOT NULL,
    first_seen timestamptz NOT NULL,
    PRIMARY KEY (origin, digest)
);
