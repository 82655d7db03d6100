-- For which queue the slots of a limit are saved up, or were last, because what waits in it takes several at once; until when they
-- are; and until when none are saved up (see saved_slots.py). Times are seconds since 1970.
ALTER TABLE limits ADD COLUMN saved_for INTEGER;
ALTER TABLE limits ADD COLUMN saved_until REAL NOT NULL DEFAULT 0;
ALTER TABLE limits ADD COLUMN rests_until REAL NOT NULL DEFAULT 0;
