-- Events that came in: CloudEvents, each once for its source and id, whatever is repeated. The leader removes old ones, with
-- their keys and takers (`keep_events_days`).
CREATE TABLE events (
    namespace   TEXT NOT NULL,
    source      TEXT NOT NULL,
    id          TEXT NOT NULL,
    type        TEXT NOT NULL,
    data        BLOB NOT NULL,
    subject     TEXT,
    time        TEXT,
    attributes  TEXT,
    received_at REAL NOT NULL,
    actor       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (namespace, source, id)
) STRICT;
CREATE INDEX events_received ON events (received_at);
CREATE INDEX events_in ON events (namespace, received_at);
CREATE INDEX events_type ON events (namespace, type, received_at);

-- By which paths events of a type are waited for. A path is written when code first waits by it, and is never removed.
CREATE TABLE event_paths (
    namespace TEXT NOT NULL,
    type      TEXT NOT NULL,
    path      TEXT NOT NULL,
    PRIMARY KEY (namespace, type, path)
) STRICT, WITHOUT ROWID;

-- What stands in events at the paths of their types, so that a wait finds the events that came before it.
CREATE TABLE event_keys (
    namespace   TEXT NOT NULL,
    type        TEXT NOT NULL,
    path        TEXT NOT NULL,
    value       TEXT NOT NULL,
    received_at REAL NOT NULL,
    source      TEXT NOT NULL,
    id          TEXT NOT NULL,
    PRIMARY KEY (namespace, type, path, value, received_at, source, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX event_keys_received ON event_keys (received_at);

-- Which runs an event started (then `wait` is empty) or woke. `wait` is a digest of the name of the wait.
CREATE TABLE event_takers (
    namespace   TEXT NOT NULL,
    source      TEXT NOT NULL,
    id          TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    wait        TEXT NOT NULL,
    received_at REAL NOT NULL,
    PRIMARY KEY (namespace, source, id, run_id, wait)
) STRICT, WITHOUT ROWID;
CREATE INDEX event_takers_run ON event_takers (run_id, wait, received_at);
CREATE INDEX event_takers_received ON event_takers (received_at);

-- Which workflows events start. Code declares it: the rows of an application are those of the set in force (`declared`).
CREATE TABLE triggers (
    namespace TEXT NOT NULL,
    type      TEXT NOT NULL,
    name      TEXT NOT NULL,
    origin    TEXT NOT NULL,
    version   TEXT NOT NULL,
    parameter TEXT NOT NULL,
    PRIMARY KEY (namespace, type, name, origin)
) STRICT, WITHOUT ROWID;
CREATE INDEX triggers_origin ON triggers (origin);

-- The waits for events that are open.
CREATE INDEX steps_events ON steps (name)
    WHERE kind = 'signal' AND state = 'waiting' AND substr(name, 1, 7) = '$event:';
