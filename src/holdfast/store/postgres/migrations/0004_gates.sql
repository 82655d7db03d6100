-- Gates: what keeps a step from beginning. A breaker for each dependency that ever had trouble, and operators' holds.
-- Both tables are small and rarely written: in good times nothing of them changes.

ALTER TABLE holdfast.lanes ADD COLUMN depends text NOT NULL DEFAULT '';
UPDATE holdfast.lanes SET depends = name;
ALTER TABLE holdfast.lanes DROP CONSTRAINT lanes_name_needs_undo_key;
ALTER TABLE holdfast.lanes ADD CONSTRAINT lanes_name_needs_undo_depends_key UNIQUE (name, needs, undo, depends);
CREATE INDEX lanes_depends ON holdfast.lanes (depends);

CREATE TABLE holdfast.breakers (
    name       text PRIMARY KEY,
    state      text NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'probing')),
    round      integer NOT NULL DEFAULT 0,
    ok         integer NOT NULL DEFAULT 0,
    failed     integer NOT NULL DEFAULT 0,
    window_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    told_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    wave       integer NOT NULL DEFAULT 0,
    allowance  integer NOT NULL DEFAULT 0,
    opened_at  timestamptz,
    open_until timestamptz,
    open_s     double precision NOT NULL DEFAULT 0,
    trips      integer NOT NULL DEFAULT 0,
    forced     boolean NOT NULL DEFAULT false,
    actor      text,
    note       text NOT NULL DEFAULT '',
    error      text,
    CONSTRAINT allowed_is_of_the_wave CHECK (allowance BETWEEN 0 AND wave)
);

CREATE TABLE holdfast.holds (
    scope text NOT NULL CHECK (scope IN ('workflow', 'step', 'dependency', 'tenant', 'all')),
    value text NOT NULL,
    actor text NOT NULL,
    note  text NOT NULL DEFAULT '',
    at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scope, value)
);
