-- Nodes that reach the store through a server. `token` is the id of the token by which the node came, `secret` is what the
-- secrets of its claims are made from, and `turn` is the number of its newest claim. These go with the node's row.
ALTER TABLE holdfast.nodes ADD COLUMN token text COLLATE "C", ADD COLUMN secret bytea,
                           ADD COLUMN turn bigint NOT NULL DEFAULT 0;
