-- Who leads since when, and how long nobody was heard to lead before; and what pruning needs to find old nodes and journal
-- rows that belong to no run.
ALTER TABLE holdfast.leases
    ADD COLUMN since timestamptz,
    ADD COLUMN renewed_at timestamptz,
    ADD COLUMN vacant_s double precision,
    ADD COLUMN predecessor text;
CREATE INDEX nodes_left ON holdfast.nodes (retired_at) WHERE retired_at IS NOT NULL;
CREATE INDEX journal_apart ON holdfast.journal (at) WHERE run_id IS NULL;
