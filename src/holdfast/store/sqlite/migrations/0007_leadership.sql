-- Who leads since when, and how long nobody was heard to lead before; and what pruning needs to find old nodes and journal
-- rows that belong to no run.
ALTER TABLE leases ADD COLUMN since REAL;
ALTER TABLE leases ADD COLUMN renewed_at REAL;
ALTER TABLE leases ADD COLUMN vacant_s REAL;
ALTER TABLE leases ADD COLUMN predecessor TEXT;
CREATE INDEX nodes_left ON nodes (retired_at) WHERE retired_at IS NOT NULL;
CREATE INDEX journal_apart ON journal (at) WHERE run_id IS NULL;
