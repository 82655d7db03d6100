-- Views: lists of runs to which somebody has given a name. `holder` is the id of whoever asked, a token's for example, and empty
-- for all who need none. They go with their token: whoever revokes it removes them, and whoever saves a view removes those of
-- tokens that have expired.
CREATE TABLE views (
    holder    TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    query     TEXT NOT NULL,
    saved_at  REAL NOT NULL,
    PRIMARY KEY (holder, namespace, name)
) STRICT, WITHOUT ROWID;
