-- True from the moment in which retention begins to remove the run, or a run below it. Nothing can go on from it then:
-- a part of what it did may be gone.
ALTER TABLE holdfast.runs ADD COLUMN removing boolean NOT NULL DEFAULT false;
