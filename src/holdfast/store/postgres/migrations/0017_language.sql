-- What the language needs: kinds of steps that nobody executes, runs that belong to nobody,
-- answers to updates, logs, forks.

-- Kinds of steps. A marker records which way the code went; asks and callbacks are ended by people and by other systems.
ALTER TABLE holdfast.steps DROP CONSTRAINT steps_kind_check;
ALTER TABLE holdfast.steps ADD CONSTRAINT steps_kind_check
    CHECK (kind IN ('call', 'timer', 'signal', 'child', 'start', 'undo', 'serve', 'marker', 'ask', 'callback'));

-- Children. A run that the code of another run started, and that is not its child: by which step.
ALTER TABLE holdfast.runs ADD COLUMN started_by text COLLATE "C", ADD COLUMN started_n integer;
CREATE INDEX runs_started ON holdfast.runs (started_by) WHERE started_by IS NOT NULL;

-- Updates. An update is a signal that gets an answer. Its name begins with `$update:`. A step of the kind `serve` is the
-- scope in which the run's code serves updates of one name.
ALTER TABLE holdfast.signals ADD COLUMN answer text, ADD COLUMN reply bytea, ADD COLUMN replied_at timestamptz;
ALTER TABLE holdfast.signals ADD CONSTRAINT signals_answer_check CHECK
    (answer IN ('returned', 'raised', 'refused', 'unserved') AND delivered_seq IS NOT NULL AND reply IS NOT NULL
     OR answer IS NULL);

-- Logs. What the attempts of steps have logged, in parts, and with n = 0 what the code of the run has logged.
CREATE TABLE holdfast.logs (
    run_id     text COLLATE "C" NOT NULL,
    n          integer NOT NULL,
    attempt    integer NOT NULL,
    twin       boolean NOT NULL DEFAULT false,
    part       integer NOT NULL,
    first_line integer NOT NULL,
    first_byte bigint NOT NULL,
    lines      integer NOT NULL,
    at         timestamptz NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (run_id, n, attempt, twin, part)
);
CREATE INDEX logs_in_time ON holdfast.logs (run_id, at, n, attempt, twin, first_line);
CREATE TYPE holdfast.logged_part AS (
    run_id text, n integer, attempt integer, twin boolean, part integer, first_line integer, first_byte bigint,
    lines integer, at double precision, body bytea);

-- Forks. The run that a run was forked from; and under the empty key, up to which step its history is that of another
-- run, and under which id its code sends signals.
ALTER TABLE holdfast.runs ADD COLUMN forked_from text COLLATE "C";
ALTER TABLE holdfast.inherited ADD COLUMN kept_n integer NOT NULL DEFAULT 0;
ALTER TABLE holdfast.inherited ADD COLUMN sender text;
