-- The engine: runs, their steps, the nodes that move them.
-- Rows that every hop touches are narrow, have room for heap-only updates (fillfactor), and no index names a column
-- that every hop changes.

CREATE TABLE holdfast.runs (
    id          text COLLATE "C" PRIMARY KEY,
    namespace   text NOT NULL DEFAULT 'default',
    workflow    text NOT NULL,
    version     text NOT NULL,
    state       text NOT NULL CHECK (state IN ('pending', 'running', 'undoing', 'held', 'stuck',
                                               'succeeded', 'failed', 'undone', 'cancelled')),
    priority    smallint NOT NULL DEFAULT 0,
    owner       text,
    fence       integer NOT NULL DEFAULT 0,
    input       bytea NOT NULL,
    digest      bytea NOT NULL,
    output      bytea,
    error       text,
    tags        text,
    parent_id   text COLLATE "C",
    parent_n    integer,
    retry_of    text COLLATE "C",
    generation  integer NOT NULL DEFAULT 1,
    base_n      integer NOT NULL DEFAULT 0,
    progress    text,
    published   text,
    resume      text,
    note        text,
    deadline    timestamptz,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at  timestamptz,
    finished_at timestamptz,
    ending      text CHECK (ending IN ('failed', 'cancelled')),
    kept_n      integer NOT NULL DEFAULT 0,
    CONSTRAINT ended_has_time CHECK ((state IN ('succeeded', 'failed', 'undone', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT owned_is_active CHECK (owner IS NULL OR state IN ('running', 'undoing'))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX runs_pending ON holdfast.runs (workflow, version, priority DESC, created_at) WHERE state = 'pending';
CREATE INDEX runs_owned ON holdfast.runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_newest ON holdfast.runs (created_at DESC, id DESC);
CREATE INDEX runs_parent ON holdfast.runs (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE holdfast.steps (
    run_id        text COLLATE "C" NOT NULL,
    n             integer NOT NULL,
    key           text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('call', 'timer', 'signal', 'child', 'undo')),
    name          text NOT NULL,
    lane          integer NOT NULL DEFAULT 0,
    state         text NOT NULL CHECK (state IN ('waiting', 'ready', 'running', 'succeeded', 'failed', 'cancelled')),
    priority      smallint NOT NULL DEFAULT 0,
    ready_at      timestamptz NOT NULL,
    attempt       integer NOT NULL DEFAULT 0,
    losses        integer NOT NULL DEFAULT 0,
    excused       integer NOT NULL DEFAULT 0,
    attempts_max  integer NOT NULL DEFAULT 1,
    timeout_s     real,
    fence         integer NOT NULL DEFAULT 0,
    agent         text,
    complete_by   timestamptz,
    input         bytea,
    digest        bytea,
    output        bytea,
    error         text,
    retry         text,
    checkpoint    bytea,
    progress      text,
    delivered_seq integer,
    issued_at     timestamptz NOT NULL,
    started_at    timestamptz,
    finished_at   timestamptz,
    after_seq     integer NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, n),
    CONSTRAINT running_has_agent CHECK (state <> 'running' OR agent IS NOT NULL)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX steps_ready ON holdfast.steps (lane, priority DESC, ready_at) WHERE state = 'ready';
CREATE INDEX steps_held ON holdfast.steps (agent) WHERE state = 'running';
CREATE INDEX steps_timers ON holdfast.steps (ready_at) WHERE state = 'waiting' AND kind = 'timer';
CREATE INDEX steps_undelivered ON holdfast.steps (run_id)
    WHERE delivered_seq IS NULL AND state IN ('succeeded', 'failed', 'cancelled');

CREATE TABLE holdfast.attempts (
    run_id      text COLLATE "C" NOT NULL,
    n           integer NOT NULL,
    attempt     integer NOT NULL,
    ending      text NOT NULL CHECK (ending IN ('failed', 'timed out', 'lost', 'refused')),
    agent       text,
    error       text,
    started_at  timestamptz,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX attempts_of ON holdfast.attempts (run_id, n, attempt);

CREATE TABLE holdfast.signals (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id        text COLLATE "C" NOT NULL,
    name          text NOT NULL,
    key           text NOT NULL,
    payload       bytea NOT NULL,
    delivered_seq integer,
    sent_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (run_id, name, key)
);
CREATE INDEX signals_undelivered ON holdfast.signals (run_id, id) WHERE delivered_seq IS NULL;

CREATE TABLE holdfast.lanes (
    id    integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name  text NOT NULL,
    needs text NOT NULL,
    undo  text NOT NULL DEFAULT '',
    UNIQUE (name, needs, undo)
);

CREATE TABLE holdfast.nodes (
    id          text PRIMARY KEY,
    host        text NOT NULL,
    pid         integer NOT NULL,
    roles       text NOT NULL,
    offers      text NOT NULL,
    capacity    integer NOT NULL,
    lock_key    bigint,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL,
    retired_at  timestamptz
);
CREATE INDEX nodes_live ON holdfast.nodes (lease_until) WHERE retired_at IS NULL;

CREATE TABLE holdfast.leases (
    name       text PRIMARY KEY,
    holder     text,
    epoch      integer NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE TABLE holdfast.alerts (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind    text NOT NULL,
    run_id  text COLLATE "C",
    message text NOT NULL,
    sent_at timestamptz
);
CREATE INDEX alerts_unsent ON holdfast.alerts (id) WHERE sent_at IS NULL;

CREATE TABLE holdfast.journal (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor  text NOT NULL,
    verb   text NOT NULL,
    run_id text COLLATE "C",
    n      integer,
    note   text NOT NULL DEFAULT ''
);
CREATE INDEX journal_of ON holdfast.journal (run_id, id) WHERE run_id IS NOT NULL;

-- Raises when a batch met a failed precondition, so that the whole statement is rolled back.
CREATE FUNCTION holdfast.demand(ok boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT ok THEN
        RAISE EXCEPTION USING ERRCODE = 'HF001', MESSAGE = 'a precondition failed';
    END IF;
    RETURN true;
END $$;

-- The state of a run whose owner is gone: one that waits for nothing has not said yet what it waits for, and is pending
-- again; any other wakes by what is delivered to it.
CREATE FUNCTION holdfast.freed(run text, state text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN state = 'running'
                 AND NOT EXISTS (SELECT FROM holdfast.steps WHERE run_id = run AND delivered_seq IS NULL)
                 AND NOT EXISTS (SELECT FROM holdfast.signals WHERE run_id = run AND delivered_seq IS NULL)
           THEN 'pending' ELSE state END
$$;
