-- What code declares: one row for each version of a workflow, by whoever started last with it. JSON Schemas are JSON texts.
CREATE TABLE workflows (
    namespace TEXT NOT NULL DEFAULT 'default',
    name      TEXT NOT NULL,
    version   TEXT NOT NULL,
    code      TEXT NOT NULL,
    origin    TEXT NOT NULL,
    digest    TEXT NOT NULL,
    input     TEXT NOT NULL,
    result    TEXT NOT NULL,
    signals   TEXT NOT NULL,
    first_at  REAL NOT NULL,
    last_at   REAL NOT NULL,
    PRIMARY KEY (namespace, name, version)
) STRICT;
CREATE INDEX workflows_last ON workflows (last_at);

-- A digest of all names that a node publishes with where they come from: nodes of one code cannot be in one another's way.
ALTER TABLE nodes ADD COLUMN code TEXT NOT NULL DEFAULT '';
