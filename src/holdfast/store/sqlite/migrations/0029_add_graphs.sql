-- The graph of a workflow as its code reads, and the digest of the code that it was read from.
ALTER TABLE workflows ADD COLUMN graph TEXT;
ALTER TABLE workflows ADD COLUMN graph_digest TEXT;
