-- Callbacks that somebody must answer by a time.
CREATE INDEX steps_callbacks ON holdfast.steps (complete_by)
    WHERE state = 'waiting' AND kind = 'callback' AND complete_by IS NOT NULL;

-- What holds for all processes on the store, such as where its servers are reached. Nobody prunes these few rows.
CREATE TABLE holdfast.settings (
    name   text COLLATE "C" NOT NULL PRIMARY KEY,
    value  text NOT NULL,
    set_at timestamptz NOT NULL
);
