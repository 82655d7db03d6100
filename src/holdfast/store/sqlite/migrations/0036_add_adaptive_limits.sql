-- Adaptive limits: the leader moves their number between a floor and the number of the code. Agents add up how attempts went,
-- in `ok`, `failed` and `seconds`, which only grow. `reported_at` is when they last did, and `moved` why the number moved last.
ALTER TABLE limits ADD COLUMN least INTEGER NOT NULL DEFAULT 1;
ALTER TABLE limits ADD COLUMN reported_at REAL NOT NULL DEFAULT 0;
ALTER TABLE limits ADD COLUMN moved TEXT NOT NULL DEFAULT '';
CREATE INDEX limits_reported ON limits (reported_at) WHERE adaptive;
