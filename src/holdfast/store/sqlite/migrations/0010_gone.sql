-- The heart of a process that is gone says so here, at once.
ALTER TABLE nodes ADD COLUMN gone_at REAL;
