-- Nodes that reach the store through a server. `token` is the id of the token by which the node came, `secret` is what the
-- secrets of its claims are made from, and `turn` is the number of its newest claim. They go with the node's row.
CREATE TABLE holdfast.remote_nodes (
    node   text COLLATE "C" PRIMARY KEY REFERENCES holdfast.nodes (id) ON DELETE CASCADE,
    token  text NOT NULL,
    secret bytea NOT NULL,
    turn   bigint NOT NULL DEFAULT 0
);
