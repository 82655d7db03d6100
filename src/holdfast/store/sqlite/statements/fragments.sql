-- Fragments that several statements share. `{name(x)}` inserts a fragment with its argument. `{Run(r)}` inserts the
-- columns of a class of model.py or answers.py, in the order of its fields. A plus before a column keeps the planner
-- from using an index on it. `store_now()` is the store's time (see clock.py). In a subquery it is called once, and can
-- bound an index range.

-- `ready_at` of a step in quarantine. This is NEVER of model.py, the last second of the year 9999.
-- fragment: never
253402300799

-- The namespace of a stored name.
-- fragment: namespace_of(name)
iif(instr({name}, '//') > 1, substr({name}, 1, instr({name}, '//') - 1), 'default')

-- fragment: quarantined(s)
(+{s}.state = 'ready' AND +{s}.ready_at >= {never})

-- True if a scheduler may own the run.
-- fragment: active(r)
(+{r}.state = 'running' OR +{r}.state = 'undoing')

-- True if the run goes on, and no operator holds its workflow or namespace.
-- fragment: goes_on(r)
((+{r}.state = 'running' OR +{r}.state = 'undoing')
 AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'workflow' AND value = {r}.workflow)
 AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'namespace' AND value = {r}.namespace))

-- True if the steps of this lane are not behind a gate.
-- fragment: passable(l)
(NOT EXISTS (SELECT 1 FROM breakers b WHERE b.name = {l}.depends AND b.state <> 'closed')
 AND NOT EXISTS (SELECT 1 FROM holds h
                 WHERE h.scope = 'all' OR (h.scope = 'dependency' AND h.value = {l}.depends)
                    OR (h.scope = 'step' AND h.value = {l}.name)))

-- True if the node has not left and was not reclaimed. Otherwise it claims and begins nothing more.
-- fragment: is_member(node)
EXISTS (SELECT 1 FROM nodes WHERE id = {node} AND retired_at IS NULL)

-- The highest priority that a ready step of the lane has.
-- fragment: top_priority(lane)
(SELECT s.priority FROM steps s INDEXED BY steps_ready WHERE s.state = 'ready' AND s.lane = {lane} ORDER BY s.priority DESC LIMIT 1)

-- The next lower priority than that of `p`.
-- fragment: next_priority(p)
(SELECT s.priority FROM steps s INDEXED BY steps_ready
 WHERE s.state = 'ready' AND s.lane = {p}.lane AND s.priority < {p}.priority ORDER BY s.priority DESC LIMIT 1)

-- The state of a run that loses its owner. A run that waits for nothing has not asked for anything yet, so it becomes
-- pending again. Any other run wakes up when there is something to deliver to it.
-- fragment: freed(r)
CASE WHEN {r}.state <> 'running'
       OR EXISTS (SELECT 1 FROM steps WHERE run_id = {r}.id AND +delivered_seq IS NULL)
       OR EXISTS (SELECT 1 FROM signals WHERE run_id = {r}.id AND delivered_seq IS NULL)
     THEN {r}.state ELSE 'pending' END

-- Something that this run did may have to be undone: it called a step that has an undo, added an undo by hand, or has
-- children.
-- fragment: undoable(r)
EXISTS (SELECT 1 FROM steps s LEFT JOIN lanes l ON l.id = s.lane
        WHERE s.run_id = {r}.id AND (s.kind IN ('child', 'undo') OR l.undo <> ''))
