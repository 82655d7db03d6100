-- Acts: one verb on many runs. The plan of an act is its row here and a row for each run, as it was when the plan was
-- made. Whoever has the act's lease carries it out.
CREATE TABLE acts (
    id          TEXT NOT NULL PRIMARY KEY,
    verb        TEXT NOT NULL CHECK (verb IN ('cancel', 'hold', 'release', 'retry', 'skip', 'fork')),
    state       TEXT NOT NULL DEFAULT 'planning' CHECK (state IN ('planning', 'planned', 'running', 'done', 'stopped')),
    fence       INTEGER NOT NULL DEFAULT 0,
    holder      TEXT,
    lease_until REAL,
    actor       TEXT NOT NULL,
    note        TEXT NOT NULL DEFAULT '',
    options     TEXT NOT NULL DEFAULT '{}',
    preview     TEXT NOT NULL DEFAULT '{}',
    runs        INTEGER NOT NULL DEFAULT 0,
    done        INTEGER NOT NULL DEFAULT 0,
    changed     INTEGER NOT NULL DEFAULT 0,
    refused     INTEGER NOT NULL DEFAULT 0,
    created_at  REAL NOT NULL,
    begun_at    REAL,
    ended_at    REAL,
    CONSTRAINT running_has_lease CHECK ((state = 'running') = (lease_until IS NOT NULL)),
    CONSTRAINT ended_has_time CHECK ((state IN ('done', 'stopped')) = (ended_at IS NOT NULL))
) STRICT;
CREATE INDEX acts_running ON acts (lease_until) WHERE state = 'running';
CREATE INDEX acts_newest ON acts (created_at DESC, id DESC);

-- The runs of an act. `state` and `fence` are those of the run when the plan was made, `fate` is what became of it.
CREATE TABLE act_runs (
    act_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    state  TEXT NOT NULL,
    fence  INTEGER NOT NULL,
    fate   TEXT CHECK (fate IN ('done', 'changed', 'refused') OR fate IS NULL),
    note   TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (act_id, run_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX act_runs_left ON act_runs (act_id, run_id) WHERE fate IS NULL;
