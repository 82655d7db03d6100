-- What code declares: one row for each version of a workflow, by whoever started last with it. JSON Schemas are JSON texts.
CREATE TABLE holdfast.workflows (
    namespace text NOT NULL DEFAULT 'default',
    name      text NOT NULL,
    version   text NOT NULL,
    code      text NOT NULL,
    origin    text NOT NULL,
    digest    text NOT NULL,
    input     text NOT NULL,
    result    text NOT NULL,
    signals   text NOT NULL,
    first_at  timestamptz NOT NULL,
    last_at   timestamptz NOT NULL,
    PRIMARY KEY (namespace, name, version)
);
CREATE INDEX workflows_last ON holdfast.workflows (last_at);

-- A digest of all names that a node publishes with where they come from: nodes of one code cannot be in one another's way.
ALTER TABLE holdfast.nodes ADD COLUMN code text NOT NULL DEFAULT '';
