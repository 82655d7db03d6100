-- Nodes that reach the store through a server. `token` is the id of the token by which the node came, `secret` is what the
-- secrets of its claims are made from, and `turn` is the number of its newest claim. They go with the node's row.
CREATE TABLE remote_nodes (
    node   TEXT NOT NULL PRIMARY KEY,
    token  TEXT NOT NULL,
    secret BLOB NOT NULL,
    turn   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TRIGGER remote_nodes_go AFTER DELETE ON nodes BEGIN DELETE FROM remote_nodes WHERE node = old.id; END;
