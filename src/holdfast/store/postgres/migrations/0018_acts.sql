-- Acts: one verb on many runs. The plan of an act is its row here and a row for each run, as it was when the plan was
-- made. Whoever has the act's lease carries it out.
CREATE TABLE holdfast.acts (
    id          text COLLATE "C" NOT NULL PRIMARY KEY,
    verb        text NOT NULL CHECK (verb IN ('cancel', 'hold', 'release', 'retry', 'skip', 'fork')),
    state       text NOT NULL DEFAULT 'planning' CHECK (state IN ('planning', 'planned', 'running', 'done', 'stopped')),
    fence       integer NOT NULL DEFAULT 0,
    holder      text,
    lease_until timestamptz,
    actor       text NOT NULL,
    note        text NOT NULL DEFAULT '',
    options     text NOT NULL DEFAULT '{}',
    preview     text NOT NULL DEFAULT '{}',
    runs        integer NOT NULL DEFAULT 0,
    done        integer NOT NULL DEFAULT 0,
    changed     integer NOT NULL DEFAULT 0,
    refused     integer NOT NULL DEFAULT 0,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    begun_at    timestamptz,
    ended_at    timestamptz,
    CONSTRAINT running_has_lease CHECK ((state = 'running') = (lease_until IS NOT NULL)),
    CONSTRAINT ended_has_time CHECK ((state IN ('done', 'stopped')) = (ended_at IS NOT NULL))
);
CREATE INDEX acts_running ON holdfast.acts (lease_until) WHERE state = 'running';
CREATE INDEX acts_newest ON holdfast.acts (created_at DESC, id DESC);

-- The runs of an act. `state` and `fence` are those of the run when the plan was made, `fate` is what became of it.
CREATE TABLE holdfast.act_runs (
    act_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    state  text NOT NULL,
    fence  integer NOT NULL,
    fate   text CHECK (fate IN ('done', 'changed', 'refused')),
    note   text NOT NULL DEFAULT '',
    PRIMARY KEY (act_id, run_id)
);
CREATE INDEX act_runs_left ON holdfast.act_runs (act_id, run_id) WHERE fate IS NULL;
