-- name: start
INSERT INTO runs (id, namespace, workflow, version, state, priority, input, digest, tags, parent_id, parent_n, deadline,
                  created_at)
VALUES (?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: started_as
SELECT workflow, digest FROM runs WHERE id = ?
