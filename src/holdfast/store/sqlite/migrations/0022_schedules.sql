-- Schedules: at which times runs start. `cursor` is the newest time that has a fate, and `next_at` is when there is something
-- to decide. `plan` is what is written about the schedule, as JSON. Somebody removes a schedule, or the code that declares
-- it no longer has it; so nobody prunes these rows.
CREATE TABLE schedules (
    name       TEXT NOT NULL PRIMARY KEY,
    namespace  TEXT NOT NULL DEFAULT 'default',
    origin     TEXT NOT NULL DEFAULT '',
    workflow   TEXT NOT NULL,
    version    TEXT NOT NULL,
    input      BLOB NOT NULL,
    digest     BLOB NOT NULL,
    priority   INTEGER NOT NULL DEFAULT 0,
    tags       TEXT,
    timeout_s  REAL,
    plan       TEXT NOT NULL,
    state      TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'ended')),
    note       TEXT NOT NULL DEFAULT '',
    actor      TEXT NOT NULL DEFAULT '',
    cursor     REAL NOT NULL,
    next_at    REAL,
    fence      INTEGER NOT NULL DEFAULT 0,
    failures   INTEGER NOT NULL DEFAULT 0,
    started    INTEGER NOT NULL DEFAULT 0,
    last_run   TEXT,
    last_at    REAL,
    tzdata     TEXT NOT NULL,
    created_at REAL NOT NULL,
    CONSTRAINT active_has_time CHECK (state <> 'active' OR next_at IS NOT NULL)
) STRICT;
CREATE INDEX schedules_due ON schedules (next_at) WHERE state = 'active';
CREATE INDEX schedules_origin ON schedules (origin);

-- What became of the times of schedules. Several times that were missed together are one row, from `at` to `last_at`. The
-- leader removes old ones (`keep_fires_days`).
CREATE TABLE fires (
    schedule   TEXT NOT NULL,
    at         REAL NOT NULL,
    repeat     INTEGER NOT NULL DEFAULT 1,
    fate       TEXT NOT NULL CHECK (fate IN ('started', 'buffered', 'skipped', 'missed', 'replaced')),
    run_id     TEXT,
    why        TEXT NOT NULL DEFAULT '',
    decided_at REAL NOT NULL,
    backfill   TEXT,
    last_at    REAL NOT NULL,
    times      INTEGER NOT NULL DEFAULT 1,
    ended      INTEGER NOT NULL,
    counted    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (schedule, at, repeat),
    CONSTRAINT started_has_run CHECK ((fate = 'started') = (run_id IS NOT NULL)),
    CONSTRAINT waiting_is_open CHECK (fate IN ('started', 'buffered') OR ended = 1)
) STRICT, WITHOUT ROWID;
CREATE INDEX fires_open ON fires (schedule, at, repeat) WHERE ended = 0;
CREATE INDEX fires_decided ON fires (decided_at) WHERE ended = 1;

-- Times of a schedule in a span that are run again, or for the first time. The leader removes old ones with the fires.
CREATE TABLE backfills (
    id           TEXT NOT NULL PRIMARY KEY,
    schedule     TEXT NOT NULL,
    from_at      REAL NOT NULL,
    to_at        REAL NOT NULL,
    newest_first INTEGER NOT NULL,
    most         INTEGER NOT NULL,
    again        TEXT NOT NULL CHECK (again IN ('none', 'failed', 'all')),
    state        TEXT NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'stopped')),
    cursor       REAL,
    started      INTEGER NOT NULL DEFAULT 0,
    passed       INTEGER NOT NULL DEFAULT 0,
    actor        TEXT NOT NULL,
    note         TEXT NOT NULL DEFAULT '',
    fence        INTEGER NOT NULL DEFAULT 0,
    created_at   REAL NOT NULL,
    ended_at     REAL,
    CONSTRAINT ended_has_time CHECK ((state = 'running') = (ended_at IS NULL))
) STRICT;
CREATE INDEX backfills_running ON backfills (created_at) WHERE state = 'running';
CREATE INDEX backfills_of ON backfills (schedule, created_at);

-- The sets of schedules that code declares: all lines of one application, as JSON. The set in force is the one first seen
-- last among those of live nodes. The leader removes sets that no live node has (`keep_workflows_days`).
CREATE TABLE declared (
    origin     TEXT NOT NULL,
    digest     TEXT NOT NULL,
    body       TEXT NOT NULL,
    first_seen REAL NOT NULL,
    PRIMARY KEY (origin, digest)
) STRICT, WITHOUT ROWID;
