-- True from the moment in which retention begins to remove the run, or a run below it. Nothing can go on from it then:
-- a part of what it did may be gone.
ALTER TABLE runs ADD COLUMN removing INTEGER NOT NULL DEFAULT 0;
