-- Events that came in: CloudEvents, each once for its source and id, whatever is repeated. The leader removes old ones, with
-- their keys and takers (`keep_events_days`).
CREATE TABLE holdfast.events (
    namespace   text COLLATE "C" NOT NULL,
    source      text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    type        text COLLATE "C" NOT NULL,
    data        bytea NOT NULL,
    subject     text,
    time        text,
    attributes  text,
    received_at timestamptz NOT NULL,
    actor       text NOT NULL DEFAULT '',
    PRIMARY KEY (namespace, source, id)
);
CREATE INDEX events_received ON holdfast.events (received_at);
CREATE INDEX events_in ON holdfast.events (namespace, received_at);
CREATE INDEX events_type ON holdfast.events (namespace, type, received_at);

-- By which paths events of a type are waited for. A path is written when code first waits by it, and is never removed.
CREATE TABLE holdfast.event_paths (
    namespace text COLLATE "C" NOT NULL,
    type      text COLLATE "C" NOT NULL,
    path      text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, type, path)
);

-- What stands in events at the paths of their types, so that a wait finds the events that came before it.
CREATE TABLE holdfast.event_keys (
    namespace   text COLLATE "C" NOT NULL,
    type        text COLLATE "C" NOT NULL,
    path        text COLLATE "C" NOT NULL,
    value       text COLLATE "C" NOT NULL,
    received_at timestamptz NOT NULL,
    source      text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, type, path, value, received_at, source, id)
);
CREATE INDEX event_keys_received ON holdfast.event_keys (received_at);

-- Which runs an event started (then `wait` is empty) or woke. `wait` is a digest of the name of the wait.
CREATE TABLE holdfast.event_takers (
    namespace   text COLLATE "C" NOT NULL,
    source      text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    run_id      text COLLATE "C" NOT NULL,
    wait        text COLLATE "C" NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, source, id, run_id, wait)
);
CREATE INDEX event_takers_run ON holdfast.event_takers (run_id, wait, received_at);
CREATE INDEX event_takers_received ON holdfast.event_takers (received_at);

-- Which workflows events start. Code declares it: the rows of an application are those of the set in force (`declared`).
CREATE TABLE holdfast.triggers (
    namespace text COLLATE "C" NOT NULL,
    type      text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    origin    text COLLATE "C" NOT NULL,
    version   text NOT NULL,
    parameter text NOT NULL,
    PRIMARY KEY (namespace, type, name, origin)
);
CREATE INDEX triggers_origin ON holdfast.triggers (origin);

-- The waits for events that are open.
CREATE INDEX steps_events ON holdfast.steps (name)
    WHERE kind = 'signal' AND state = 'waiting' AND starts_with(name, '$event:');
