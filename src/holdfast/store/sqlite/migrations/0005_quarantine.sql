-- Failures have classes with budgets of their own, and poison steps wait for a person.

ALTER TABLE steps ADD COLUMN timeouts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE steps ADD COLUMN throttled INTEGER NOT NULL DEFAULT 0;
-- The one definition of what counts against the application's own budget; `spent` of model.py is the same.
ALTER TABLE steps ADD COLUMN spent INTEGER AS (attempt - losses - excused - timeouts - throttled) VIRTUAL;

-- Beside a step that is ready and never due. The step's row decides: a row here whose step went another way means nothing.
CREATE TABLE quarantine (
    run_id      TEXT NOT NULL,
    n           INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    step        TEXT NOT NULL,
    error       TEXT NOT NULL,
    place       TEXT NOT NULL,
    at          REAL NOT NULL,
    PRIMARY KEY (run_id, n)
) STRICT;
CREATE INDEX quarantine_alike ON quarantine (fingerprint, run_id, n);
