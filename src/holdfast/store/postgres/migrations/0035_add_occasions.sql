-- Times are numbers here: an event may come in on a caller's connection, whose driver gives other types of times.

-- Composed triggers: several events and times start a workflow together. Code declares them, as a set (`declared`), so nobody
-- prunes these rows. `body` is what the code says, as JSON.
CREATE TABLE holdfast.composed (
    name      text COLLATE "C" NOT NULL PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    workflow  text NOT NULL,
    version   text NOT NULL,
    body      text NOT NULL,
    digest    text NOT NULL,
    origin    text COLLATE "C" NOT NULL
);
CREATE INDEX composed_origin ON holdfast.composed (origin);

-- Which types of events a composed trigger takes.
CREATE TABLE holdfast.composed_types (
    namespace text COLLATE "C" NOT NULL,
    type      text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, type, name)
);
CREATE INDEX composed_types_of ON holdfast.composed_types (name);

-- The times of composed triggers. `cursor` is the newest time that has arrived, and `next_at` is when the next one comes.
CREATE TABLE holdfast.composed_times (
    name    text COLLATE "C" NOT NULL,
    part    text COLLATE "C" NOT NULL,
    plan    text NOT NULL,
    cursor  float8 NOT NULL,
    next_at float8,
    PRIMARY KEY (name, part)
);
CREATE INDEX composed_times_due ON holdfast.composed_times (next_at) WHERE next_at IS NOT NULL;

-- Occasions: a composed trigger and a value. The leader removes those that have ended long ago (`keep_events_days`).
CREATE TABLE holdfast.occasions (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    namespace    text COLLATE "C" NOT NULL,
    trigger_name text COLLATE "C" NOT NULL,
    value        text COLLATE "C" NOT NULL,
    state        text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'started', 'expired')),
    digest       text NOT NULL,
    opened_at    float8 NOT NULL,
    ends_at      float8 NOT NULL,
    ended_at     float8,
    late         integer NOT NULL DEFAULT 0,
    note         text NOT NULL DEFAULT '',
    CONSTRAINT ended_has_time CHECK ((state = 'open') = (ended_at IS NULL))
);
CREATE INDEX occasions_due ON holdfast.occasions (ends_at) WHERE state = 'open';
CREATE INDEX occasions_ended ON holdfast.occasions (ended_at) WHERE state <> 'open';
CREATE INDEX occasions_in ON holdfast.occasions (namespace, opened_at);

-- What occasions have collected: events, whose data stays in `events`, and times, which have no source. Rows go with their
-- occasion.
CREATE TABLE holdfast.collected (
    occasion  text COLLATE "C" NOT NULL,
    part      text COLLATE "C" NOT NULL,
    source    text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    at        float8 NOT NULL,
    PRIMARY KEY (occasion, part, source, id)
);
CREATE INDEX collected_event ON holdfast.collected (namespace, source, id);
