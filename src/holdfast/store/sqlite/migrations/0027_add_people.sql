-- Asks: questions to people. The step of the kind `ask` waits, and its row is locked before that of the ask. `not_by` and
-- `plan` are JSON. `reached_at` is up to when reminders and escalation are done, and `next_at` is when there is something to do.
-- These rows go with their run.
CREATE TABLE asks (
    id         TEXT NOT NULL PRIMARY KEY,
    namespace  TEXT NOT NULL,
    run_id     TEXT NOT NULL,
    n          INTEGER NOT NULL,
    workflow   TEXT NOT NULL,
    state      TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'answered', 'expired', 'withdrawn')),
    question   TEXT NOT NULL,
    form       TEXT NOT NULL,
    show       TEXT NOT NULL,
    quorum     INTEGER NOT NULL,
    not_by     TEXT NOT NULL,
    plan       TEXT NOT NULL,
    asked_at   REAL NOT NULL,
    expires_at REAL,
    reached_at REAL,
    next_at    REAL,
    ended_at   REAL,
    CONSTRAINT ended_has_time CHECK ((state = 'open') = (ended_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX asks_step ON asks (run_id, n);
CREATE INDEX asks_open ON asks (asked_at, id) WHERE state = 'open';
CREATE INDEX asks_next ON asks (next_at) WHERE state = 'open' AND next_at IS NOT NULL;
CREATE INDEX asks_ended ON asks (ended_at) WHERE state <> 'open';

-- Who is asked, and what they answered. A team has a row, and so has each of its members who has answered or handed the
-- place over. These rows go with their run.
CREATE TABLE ask_people (
    ask         TEXT NOT NULL,
    who         TEXT NOT NULL,
    since       REAL NOT NULL,
    through     TEXT NOT NULL,
    hops        INTEGER NOT NULL DEFAULT 0,
    handed_to   TEXT,
    value       BLOB,
    note        TEXT NOT NULL DEFAULT '',
    via         TEXT NOT NULL DEFAULT '',
    answered_at REAL,
    is_open     INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (ask, who),
    CONSTRAINT answered_has_value CHECK ((value IS NULL) = (answered_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX ask_inbox ON ask_people (who, since, ask) WHERE is_open = 1;

-- Whom the bearer of a token is, and which teams they are in, as JSON: ["person:anna", "team:finance"].
ALTER TABLE tokens ADD COLUMN who TEXT NOT NULL DEFAULT '[]';
