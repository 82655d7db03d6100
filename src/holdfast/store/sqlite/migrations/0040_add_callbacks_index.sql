-- Callbacks that wait, for lists: those of a namespace, the oldest first. The expression is the namespace of a stored name.
CREATE INDEX steps_called ON steps (
    CASE WHEN instr(run_id, '//') > 1 THEN substr(run_id, 1, instr(run_id, '//') - 1) ELSE 'default' END, issued_at, run_id, n
) WHERE state = 'waiting' AND kind = 'callback';
