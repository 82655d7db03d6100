-- Callbacks that wait, for lists: those of a namespace, the oldest first.
CREATE INDEX steps_called ON holdfast.steps (holdfast.namespace_of(run_id), issued_at, run_id, n)
    WHERE state = 'waiting' AND kind = 'callback';
