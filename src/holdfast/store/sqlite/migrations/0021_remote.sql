-- Nodes that reach the store through a server. `token` is the id of the token by which the node came, `secret` is what the
-- secrets of its claims are made from, and `turn` is the number of its newest claim. These go with the node's row.
ALTER TABLE nodes ADD COLUMN token TEXT;
ALTER TABLE nodes ADD COLUMN secret BLOB;
ALTER TABLE nodes ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
