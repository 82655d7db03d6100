-- Queues: whom work is for, and which limits it is under. A queue is a number for (namespace, fair key, limits). 0 is none of
-- them. Rows are few and are made once: nobody removes them, because rows of runs and steps name them.
CREATE TABLE queues (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    key        TEXT NOT NULL UNIQUE,
    fair       TEXT NOT NULL,
    limits     TEXT NOT NULL,
    rates      TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT;
INSERT INTO queues (id, key, fair, limits, rates, created_at) VALUES (15, '', '', '[]', '[]', 0.0);
DELETE FROM queues;  -- the first number that is given is 16
CREATE INDEX queues_fair ON queues (fair);

-- The weights of fair keys, by stored name. A key without a row has the weight 1.
CREATE TABLE fairs (
    name   TEXT NOT NULL PRIMARY KEY,
    weight INTEGER NOT NULL CHECK (weight BETWEEN 1 AND 100),
    actor  TEXT NOT NULL DEFAULT '',
    note   TEXT NOT NULL DEFAULT '',
    set_at REAL NOT NULL
) STRICT;

-- Limits and rates, by stored name. `declared` is the number in the code, `most` the one in force: an operator may have set
-- another, and the leader moves the number of an adaptive one. `tat` is the time before which a rate has no more tokens than
-- its burst.
CREATE TABLE limits (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    kind       TEXT NOT NULL CHECK (kind IN ('limit', 'rate')),
    declared   INTEGER NOT NULL,
    most       INTEGER NOT NULL CHECK (most >= 0),
    per_s      REAL,
    burst      INTEGER,
    tat        REAL NOT NULL DEFAULT 0,
    adaptive   INTEGER NOT NULL DEFAULT 0,
    is_set     INTEGER NOT NULL DEFAULT 0,
    actor      TEXT NOT NULL DEFAULT '',
    note       TEXT NOT NULL DEFAULT '',
    changed_at REAL NOT NULL,
    ok         INTEGER NOT NULL DEFAULT 0,
    failed     INTEGER NOT NULL DEFAULT 0,
    seconds    REAL NOT NULL DEFAULT 0,
    usual_s    REAL,
    moved_at   REAL,
    CONSTRAINT rate_has_span CHECK ((kind = 'rate') = (per_s IS NOT NULL AND burst IS NOT NULL))
) STRICT;
CREATE INDEX limits_adaptive ON limits (id) WHERE adaptive;

-- What is under a limit says so in its own row. How much of a limit is in use is read from the rows that run.
ALTER TABLE steps ADD COLUMN limit_a INTEGER;
ALTER TABLE steps ADD COLUMN limit_b INTEGER;
ALTER TABLE steps ADD COLUMN limit_c INTEGER;
ALTER TABLE steps ADD COLUMN weight_a INTEGER;
ALTER TABLE steps ADD COLUMN weight_b INTEGER;
ALTER TABLE steps ADD COLUMN weight_c INTEGER;
CREATE INDEX steps_in_a ON steps (limit_a, state, ready_at) WHERE finished_at IS NULL AND limit_a IS NOT NULL;
CREATE INDEX steps_in_b ON steps (limit_b, state, ready_at) WHERE finished_at IS NULL AND limit_b IS NOT NULL;
CREATE INDEX steps_in_c ON steps (limit_c, state, ready_at) WHERE finished_at IS NULL AND limit_c IS NOT NULL;
ALTER TABLE runs ADD COLUMN fair TEXT;
ALTER TABLE runs ADD COLUMN under TEXT;
ALTER TABLE runs ADD COLUMN limit_a INTEGER;
ALTER TABLE runs ADD COLUMN limit_b INTEGER;
ALTER TABLE runs ADD COLUMN limit_c INTEGER;
ALTER TABLE runs ADD COLUMN weight_a INTEGER;
ALTER TABLE runs ADD COLUMN weight_b INTEGER;
ALTER TABLE runs ADD COLUMN weight_c INTEGER;
CREATE INDEX runs_in_a ON runs (limit_a, state) WHERE finished_at IS NULL AND limit_a IS NOT NULL;
CREATE INDEX runs_in_b ON runs (limit_b, state) WHERE finished_at IS NULL AND limit_b IS NOT NULL;
CREATE INDEX runs_in_c ON runs (limit_c, state) WHERE finished_at IS NULL AND limit_c IS NOT NULL;

-- The walk goes from queue to queue: each is one range. Those who look at all queues of a lane at once use `steps_queued`.
DROP INDEX steps_ready;
CREATE INDEX steps_ready ON steps (lane, priority DESC, queue, ready_at) WHERE state = 'ready';
CREATE INDEX steps_queued ON steps (lane, ready_at) WHERE state = 'ready' AND queue > 0;
DROP INDEX runs_pending;
CREATE INDEX runs_pending ON runs (workflow, version, priority DESC, queue, created_at) WHERE state = 'pending';
