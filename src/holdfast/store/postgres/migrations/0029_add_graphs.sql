-- The graph of a workflow as its code reads, and the digest of the code that it was read from.
ALTER TABLE holdfast.workflows ADD COLUMN graph text, ADD COLUMN graph_digest text;
