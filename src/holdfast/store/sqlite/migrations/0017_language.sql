-- What the language needs: kinds of steps that nobody executes, runs that belong to nobody,
-- answers to updates, logs, forks.

-- Kinds of steps. A marker records which way the code went; asks and callbacks are ended by people and by other systems.
-- SQLite cannot change a CHECK: the table is made anew.
ALTER TABLE steps RENAME TO steps_before;
DROP INDEX steps_ready;
DROP INDEX steps_held;
DROP INDEX steps_timers;
DROP INDEX steps_undelivered;
CREATE TABLE steps (
    run_id        TEXT NOT NULL,
    n             INTEGER NOT NULL,
    state         TEXT NOT NULL CHECK (state = 'running' OR state = 'succeeded' OR state = 'ready' OR state = 'waiting'
                                         OR state = 'failed' OR state = 'cancelled'),
    fence         INTEGER NOT NULL DEFAULT 0,
    delivered_seq INTEGER,
    kind          TEXT NOT NULL CHECK (kind = 'call' OR kind = 'timer' OR kind = 'signal' OR kind = 'child'
                                        OR kind = 'start' OR kind = 'undo' OR kind = 'serve' OR kind = 'marker'
                                        OR kind = 'ask' OR kind = 'callback'),
    lane          INTEGER NOT NULL DEFAULT 0,
    priority      INTEGER NOT NULL DEFAULT 0,
    attempt       INTEGER NOT NULL DEFAULT 0,
    losses        INTEGER NOT NULL DEFAULT 0,
    excused       INTEGER NOT NULL DEFAULT 0,
    attempts_max  INTEGER NOT NULL DEFAULT 1,
    agent         TEXT,
    ready_at      REAL NOT NULL,
    complete_by   REAL,
    timeout_s     REAL,
    issued_at     REAL NOT NULL,
    started_at    REAL,
    finished_at   REAL,
    after_seq     INTEGER NOT NULL DEFAULT 0,
    key           TEXT NOT NULL,
    name          TEXT NOT NULL,
    digest        BLOB,
    retry         TEXT,
    progress      TEXT,
    error         TEXT,
    input         BLOB,
    output        BLOB,
    checkpoint    BLOB,
    timeouts      INTEGER NOT NULL DEFAULT 0,
    throttled     INTEGER NOT NULL DEFAULT 0,
    -- The one definition of what counts against the application's own budget; `spent` of model.py is the same.
    spent         INTEGER AS (attempt - losses - excused - timeouts - throttled) VIRTUAL,
    effect        TEXT,
    PRIMARY KEY (run_id, n),
    CONSTRAINT ended_has_time CHECK
        ((state = 'succeeded' OR state = 'failed' OR state = 'cancelled') = (finished_at IS NOT NULL)),
    CONSTRAINT running_has_agent CHECK (state <> 'running' OR agent IS NOT NULL)
) STRICT;
INSERT INTO steps (run_id, n, state, fence, delivered_seq, kind, lane, priority, attempt, losses, excused, attempts_max,
                   agent, ready_at, complete_by, timeout_s, issued_at, started_at, finished_at, after_seq, key, name,
                   digest, retry, progress, error, input, output, checkpoint, timeouts, throttled, effect)
SELECT run_id, n, state, fence, delivered_seq, kind, lane, priority, attempt, losses, excused, attempts_max,
       agent, ready_at, complete_by, timeout_s, issued_at, started_at, finished_at, after_seq, key, name,
       digest, retry, progress, error, input, output, checkpoint, timeouts, throttled, effect
FROM steps_before;
DROP TABLE steps_before;
CREATE INDEX steps_ready ON steps (lane, priority DESC, ready_at) WHERE state = 'ready';
CREATE INDEX steps_held ON steps (agent, complete_by) WHERE state = 'running';
CREATE INDEX steps_timers ON steps (ready_at) WHERE state = 'waiting' AND kind = 'timer';
CREATE INDEX steps_undelivered ON steps (run_id) WHERE delivered_seq IS NULL AND finished_at IS NOT NULL;

-- Children. A run that the code of another run started, and that is not its child: by which step.
ALTER TABLE runs ADD COLUMN started_by TEXT;
ALTER TABLE runs ADD COLUMN started_n INTEGER;
CREATE INDEX runs_started ON runs (started_by) WHERE started_by IS NOT NULL;

-- Updates. An update is a signal that gets an answer. Its name begins with `$update:`. A step of the kind `serve` is the
-- scope in which the run's code serves updates of one name.
ALTER TABLE signals ADD COLUMN reply BLOB;
ALTER TABLE signals ADD COLUMN replied_at REAL;
ALTER TABLE signals ADD COLUMN answer TEXT
    CHECK (answer IN ('returned', 'raised', 'refused', 'unserved') AND delivered_seq IS NOT NULL AND reply IS NOT NULL
           OR answer IS NULL);

-- Logs. What the attempts of steps have logged, in parts, and with n = 0 what the code of the run has logged.
CREATE TABLE logs (
    run_id     TEXT NOT NULL,
    n          INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    twin       INTEGER NOT NULL DEFAULT 0,
    part       INTEGER NOT NULL,
    first_line INTEGER NOT NULL,
    first_byte INTEGER NOT NULL,
    lines      INTEGER NOT NULL,
    at         REAL NOT NULL,
    body       BLOB NOT NULL,
    PRIMARY KEY (run_id, n, attempt, twin, part)
) STRICT;
CREATE INDEX logs_in_time ON logs (run_id, at, n, attempt, twin, first_line);

-- Forks. The run that a run was forked from; and under the empty key, up to which step its history is that of another
-- run, and under which id its code sends signals.
ALTER TABLE runs ADD COLUMN forked_from TEXT;
ALTER TABLE inherited ADD COLUMN kept_n INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inherited ADD COLUMN sender TEXT;
