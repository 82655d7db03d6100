-- What was called a tenant is a namespace. A fair key is a scope, too. SQLite cannot change a CHECK: the table is made anew.
ALTER TABLE holds RENAME TO holds_before;
CREATE TABLE holds (
    scope TEXT NOT NULL CHECK (scope IN ('workflow', 'step', 'dependency', 'namespace', 'fair', 'all')),
    value TEXT NOT NULL,
    actor TEXT NOT NULL,
    note  TEXT NOT NULL DEFAULT '',
    at    REAL NOT NULL,
    PRIMARY KEY (scope, value)
) STRICT;
INSERT INTO holds (scope, value, actor, note, at)
SELECT CASE scope WHEN 'tenant' THEN 'namespace' ELSE scope END, value, actor, note, at FROM holds_before;
DROP TABLE holds_before;
