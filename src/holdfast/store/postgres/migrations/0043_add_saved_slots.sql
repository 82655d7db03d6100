-- For which queue the slots of a limit are saved up, or were last, because what waits in it takes several at once; until when they
-- are; and until when none are saved up (see saved_slots.py). Times are seconds since 1970.
ALTER TABLE holdfast.limits
    ADD COLUMN saved_for integer,
    ADD COLUMN saved_until double precision NOT NULL DEFAULT 0,
    ADD COLUMN rests_until double precision NOT NULL DEFAULT 0;
