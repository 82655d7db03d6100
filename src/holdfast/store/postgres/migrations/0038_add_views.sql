-- Views: lists of runs to which somebody has given a name. `holder` is the id of whoever asked, a token's for example, and empty
-- for all who need none. They go with their token: whoever revokes it removes them, and whoever saves a view removes those of
-- tokens that have expired.
CREATE TABLE holdfast.views (
    holder    text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    query     text NOT NULL,
    saved_at  timestamptz NOT NULL,
    PRIMARY KEY (holder, namespace, name)
);
