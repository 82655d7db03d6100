-- Gates: what keeps a step from beginning. A breaker for each dependency that ever had trouble, and operators' holds.
-- Both tables are small and rarely written: in good times nothing of them changes.

-- SQLite cannot change what is unique in a table: it is made anew.
ALTER TABLE lanes RENAME TO lanes_before;
CREATE TABLE lanes (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    name    TEXT NOT NULL,
    needs   TEXT NOT NULL,
    undo    TEXT NOT NULL DEFAULT '',
    depends TEXT NOT NULL DEFAULT '',
    UNIQUE (name, needs, undo, depends)
) STRICT;
INSERT INTO lanes (id, name, needs, undo, depends) SELECT id, name, needs, undo, name FROM lanes_before;
DROP TABLE lanes_before;
CREATE INDEX lanes_depends ON lanes (depends);

CREATE TABLE breakers (
    name       TEXT NOT NULL PRIMARY KEY,
    state      TEXT NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'probing')),
    round      INTEGER NOT NULL DEFAULT 0,
    ok         INTEGER NOT NULL DEFAULT 0,
    failed     INTEGER NOT NULL DEFAULT 0,
    window_at  REAL NOT NULL,
    told_at    REAL NOT NULL,
    wave       INTEGER NOT NULL DEFAULT 0,
    allowance  INTEGER NOT NULL DEFAULT 0,
    opened_at  REAL,
    open_until REAL,
    open_s     REAL NOT NULL DEFAULT 0,
    trips      INTEGER NOT NULL DEFAULT 0,
    forced     INTEGER NOT NULL DEFAULT 0,
    actor      TEXT,
    note       TEXT NOT NULL DEFAULT '',
    error      TEXT,
    CONSTRAINT allowed_is_of_the_wave CHECK (allowance BETWEEN 0 AND wave)
) STRICT;

CREATE TABLE holds (
    scope TEXT NOT NULL CHECK (scope IN ('workflow', 'step', 'dependency', 'tenant', 'all')),
    value TEXT NOT NULL,
    actor TEXT NOT NULL,
    note  TEXT NOT NULL DEFAULT '',
    at    REAL NOT NULL,
    PRIMARY KEY (scope, value)
) STRICT;
