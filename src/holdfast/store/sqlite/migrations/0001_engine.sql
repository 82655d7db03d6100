-- The engine: runs, their steps, the nodes that move them. The same tables and columns as in PostgreSQL.
-- Small columns stand before payloads, so that reading them does not walk a large payload's overflow pages. Tables keep
-- their rowid: without it a hop took twice as long with small payloads, four times with 1,500 bytes.
-- Conditions that every hop evaluates are spelled with OR: SQLite builds a table in memory for each IN list of three or
-- more, every time it is asked.

CREATE TABLE runs (
    id          TEXT NOT NULL PRIMARY KEY,
    state       TEXT NOT NULL CHECK (state = 'pending' OR state = 'running' OR state = 'undoing' OR state = 'held'
                                       OR state = 'stuck' OR state = 'succeeded' OR state = 'failed'
                                       OR state = 'undone' OR state = 'cancelled'),
    owner       TEXT,
    fence       INTEGER NOT NULL DEFAULT 0,
    priority    INTEGER NOT NULL DEFAULT 0,
    namespace   TEXT NOT NULL DEFAULT 'default',
    workflow    TEXT NOT NULL,
    version     TEXT NOT NULL,
    parent_id   TEXT,
    parent_n    INTEGER,
    retry_of    TEXT,
    generation  INTEGER NOT NULL DEFAULT 1,
    base_n      INTEGER NOT NULL DEFAULT 0,
    resume      TEXT,
    deadline    REAL,
    created_at  REAL NOT NULL,
    started_at  REAL,
    finished_at REAL,
    ending      TEXT CHECK (ending IN ('failed', 'cancelled')),
    kept_n      INTEGER NOT NULL DEFAULT 0,
    digest      BLOB NOT NULL,
    note        TEXT,
    tags        TEXT,
    progress    TEXT,
    published   TEXT,
    error       TEXT,
    input       BLOB NOT NULL,
    output      BLOB,
    CONSTRAINT ended_has_time CHECK
        ((state = 'succeeded' OR state = 'failed' OR state = 'undone' OR state = 'cancelled') = (finished_at IS NOT NULL)),
    CONSTRAINT owned_is_active CHECK (owner IS NULL OR state = 'running' OR state = 'undoing')
) STRICT;

CREATE INDEX runs_pending ON runs (workflow, version, priority DESC, created_at) WHERE state = 'pending';
CREATE INDEX runs_owned ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_newest ON runs (created_at DESC, id DESC);
CREATE INDEX runs_parent ON runs (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE steps (
    run_id        TEXT NOT NULL,
    n             INTEGER NOT NULL,
    state         TEXT NOT NULL CHECK (state = 'running' OR state = 'succeeded' OR state = 'ready' OR state = 'waiting'
                                         OR state = 'failed' OR state = 'cancelled'),
    fence         INTEGER NOT NULL DEFAULT 0,
    delivered_seq INTEGER,
    kind          TEXT NOT NULL CHECK (kind = 'call' OR kind = 'timer' OR kind = 'signal' OR kind = 'child'
                                        OR kind = 'undo'),
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
    PRIMARY KEY (run_id, n),
    CONSTRAINT ended_has_time CHECK
        ((state = 'succeeded' OR state = 'failed' OR state = 'cancelled') = (finished_at IS NOT NULL)),
    CONSTRAINT running_has_agent CHECK (state <> 'running' OR agent IS NOT NULL)
) STRICT;

CREATE INDEX steps_ready ON steps (lane, priority DESC, ready_at) WHERE state = 'ready';
CREATE INDEX steps_held ON steps (agent, complete_by) WHERE state = 'running';
CREATE INDEX steps_timers ON steps (ready_at) WHERE state = 'waiting' AND kind = 'timer';
CREATE INDEX steps_undelivered ON steps (run_id) WHERE delivered_seq IS NULL AND finished_at IS NOT NULL;

CREATE TABLE attempts (
    run_id      TEXT NOT NULL,
    n           INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    ending      TEXT NOT NULL CHECK (ending IN ('failed', 'timed out', 'lost', 'refused')),
    agent       TEXT,
    error       TEXT,
    started_at  REAL,
    finished_at REAL NOT NULL
) STRICT;
CREATE INDEX attempts_of ON attempts (run_id, n, attempt);

CREATE TABLE signals (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id        TEXT NOT NULL,
    name          TEXT NOT NULL,
    key           TEXT NOT NULL,
    delivered_seq INTEGER,
    sent_at       REAL NOT NULL,
    payload       BLOB NOT NULL,
    UNIQUE (run_id, name, key)
) STRICT;
CREATE INDEX signals_undelivered ON signals (run_id, id) WHERE delivered_seq IS NULL;

CREATE TABLE lanes (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    name  TEXT NOT NULL,
    needs TEXT NOT NULL,
    undo  TEXT NOT NULL DEFAULT '',
    UNIQUE (name, needs, undo)
) STRICT;

CREATE TABLE nodes (
    id          TEXT NOT NULL PRIMARY KEY,
    host        TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    roles       TEXT NOT NULL,
    offers      TEXT NOT NULL,
    capacity    INTEGER NOT NULL,
    started_at  REAL NOT NULL,
    lease_until REAL NOT NULL,
    retired_at  REAL
) STRICT;
CREATE INDEX nodes_live ON nodes (lease_until) WHERE retired_at IS NULL;

CREATE TABLE leases (
    name       TEXT NOT NULL PRIMARY KEY,
    holder     TEXT,
    epoch      INTEGER NOT NULL,
    expires_at REAL NOT NULL
) STRICT;

CREATE TABLE alerts (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      REAL NOT NULL,
    kind    TEXT NOT NULL,
    run_id  TEXT,
    message TEXT NOT NULL,
    sent_at REAL
) STRICT;
CREATE INDEX alerts_unsent ON alerts (id) WHERE sent_at IS NULL;

CREATE TABLE journal (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     REAL NOT NULL,
    actor  TEXT NOT NULL,
    verb   TEXT NOT NULL,
    run_id TEXT,
    n      INTEGER,
    note   TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX journal_of ON journal (run_id, id) WHERE run_id IS NOT NULL;
