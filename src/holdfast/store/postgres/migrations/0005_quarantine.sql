-- Failures have classes with budgets of their own, and poison steps wait for a person.

ALTER TABLE holdfast.steps
    ADD COLUMN timeouts integer NOT NULL DEFAULT 0,
    ADD COLUMN throttled integer NOT NULL DEFAULT 0;

-- The one definition of what counts against the application's own budget; `spent` of model.py is the same.
CREATE FUNCTION holdfast.spent(s holdfast.steps) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT s.attempt - s.losses - s.excused - s.timeouts - s.throttled
$$;

-- Beside a step that is ready and never due. The step's row decides: a row here whose step went another way means nothing.
CREATE TABLE holdfast.quarantine (
    run_id      text COLLATE "C" NOT NULL,
    n           integer NOT NULL,
    fingerprint text NOT NULL,
    step        text NOT NULL,
    error       text NOT NULL,
    place       text NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, n)
);
CREATE INDEX quarantine_alike ON holdfast.quarantine (fingerprint, run_id, n);
