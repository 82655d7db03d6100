-- Composed triggers: several events and times start a workflow together. Code declares them, as a set (`declared`), so nobody
-- prunes these rows. `body` is what the code says, as JSON.
CREATE TABLE composed (
    name      TEXT NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    workflow  TEXT NOT NULL,
    version   TEXT NOT NULL,
    body      TEXT NOT NULL,
    digest    TEXT NOT NULL,
    origin    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX composed_origin ON composed (origin);

-- Which types of events a composed trigger takes.
CREATE TABLE composed_types (
    namespace TEXT NOT NULL,
    type      TEXT NOT NULL,
    name      TEXT NOT NULL,
    PRIMARY KEY (namespace, type, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX composed_types_of ON composed_types (name);

-- The times of composed triggers. `cursor` is the newest time that has arrived, and `next_at` is when the next one comes.
CREATE TABLE composed_times (
    name    TEXT NOT NULL,
    part    TEXT NOT NULL,
    plan    TEXT NOT NULL,
    cursor  REAL NOT NULL,
    next_at REAL,
    PRIMARY KEY (name, part)
) STRICT, WITHOUT ROWID;
CREATE INDEX composed_times_due ON composed_times (next_at) WHERE next_at IS NOT NULL;

-- Occasions: a composed trigger and a value. The leader removes those that have ended long ago (`keep_events_days`).
CREATE TABLE occasions (
    id           TEXT NOT NULL PRIMARY KEY,
    namespace    TEXT NOT NULL,
    trigger_name TEXT NOT NULL,
    value        TEXT NOT NULL,
    state        TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'started', 'expired')),
    digest       TEXT NOT NULL,
    opened_at    REAL NOT NULL,
    ends_at      REAL NOT NULL,
    ended_at     REAL,
    late         INTEGER NOT NULL DEFAULT 0,
    note         TEXT NOT NULL DEFAULT '',
    CONSTRAINT ended_has_time CHECK ((state = 'open') = (ended_at IS NULL))
) STRICT;
CREATE INDEX occasions_due ON occasions (ends_at) WHERE state = 'open';
CREATE INDEX occasions_ended ON occasions (ended_at) WHERE state <> 'open';
CREATE INDEX occasions_in ON occasions (namespace, opened_at);

-- What occasions have collected: events, whose data stays in `events`, and times, which have no source. Rows go with their
-- occasion.
CREATE TABLE collected (
    occasion  TEXT NOT NULL,
    part      TEXT NOT NULL,
    source    TEXT NOT NULL,
    id        TEXT NOT NULL,
    namespace TEXT NOT NULL,
    at        REAL NOT NULL,
    PRIMARY KEY (occasion, part, source, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX collected_event ON collected (namespace, source, id);
