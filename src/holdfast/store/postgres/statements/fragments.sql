-- Fragments that several statements share. `{name(x)}` inserts a fragment with its argument. `{Run(r)}` inserts the
-- columns of a class of model.py or answers.py, in the order of its fields.

-- `ready_at` of a step in quarantine. This is NEVER of model.py, the last second of the year 9999.
-- fragment: never
to_timestamp(253402300799)

-- fragment: quarantined(s)
({s}.state = 'ready' AND {s}.ready_at >= {never})

-- fragment: has_ended(s)
({s}.state IN ('succeeded', 'failed', 'cancelled'))

-- True if a scheduler may own the run.
-- fragment: active(r)
({r}.state IN ('running', 'undoing'))

-- True if the run goes on, and no operator holds its workflow or namespace.
-- fragment: goes_on(r)
({r}.state IN ('running', 'undoing') AND NOT EXISTS (
    SELECT FROM holdfast.holds h
    WHERE (h.scope = 'workflow' AND h.value = {r}.workflow) OR (h.scope = 'namespace' AND h.value = {r}.namespace)))

-- True if the steps of this lane are not behind a gate.
-- fragment: passable(l)
(NOT EXISTS (SELECT FROM holdfast.breakers b WHERE b.name = {l}.depends AND b.state <> 'closed')
 AND NOT EXISTS (SELECT FROM holdfast.holds h
                 WHERE h.scope = 'all' OR (h.scope = 'dependency' AND h.value = {l}.depends)
                    OR (h.scope = 'step' AND h.value = {l}.name)))

-- True if the node has not left and was not reclaimed. Otherwise it claims and begins nothing more.
-- fragment: is_member(node)
EXISTS (SELECT FROM holdfast.nodes WHERE id = {node} AND retired_at IS NULL)

-- The highest priority that a ready step of the lane has.
-- fragment: top_priority(lane)
(SELECT s.priority FROM holdfast.steps s WHERE s.state = 'ready' AND s.lane = {lane} ORDER BY s.priority DESC LIMIT 1)

-- The next lower priority than that of `p`.
-- fragment: next_priority(p)
(SELECT s.priority FROM holdfast.steps s WHERE s.state = 'ready' AND s.lane = {p}.lane AND s.priority < {p}.priority
 ORDER BY s.priority DESC LIMIT 1)

-- Something that this run did may have to be undone: it called a step that has an undo, added an undo by hand, or has
-- children.
-- fragment: undoable(r)
EXISTS (SELECT 1 FROM holdfast.steps s LEFT JOIN holdfast.lanes l ON l.id = s.lane
        WHERE s.run_id = {r}.id AND (s.kind IN ('child', 'undo') OR l.undo <> ''))
