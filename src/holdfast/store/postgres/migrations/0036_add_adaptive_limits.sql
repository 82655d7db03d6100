-- Adaptive limits: the leader moves their number between a floor and the number of the code. Agents add up how attempts went,
-- in `ok`, `failed` and `seconds`, which only grow. `reported_at` is when they last did, and `moved` why the number moved last.
ALTER TABLE holdfast.limits
    ADD COLUMN least integer NOT NULL DEFAULT 1,
    ADD COLUMN reported_at timestamptz NOT NULL DEFAULT 'epoch',
    ADD COLUMN moved text NOT NULL DEFAULT '';
CREATE INDEX limits_reported ON holdfast.limits (reported_at) WHERE adaptive;
