-- From when an agent could claim the attempt. Before that, its step backed off.
ALTER TABLE attempts ADD COLUMN ready_at REAL;
