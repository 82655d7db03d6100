-- What the code of nodes declares about workflows, and which nodes publish which names.

-- Live nodes that publish other code. A node without code publishes nothing.
-- name: rivals
SELECT id, host, pid, offers FROM nodes INDEXED BY nodes_live
WHERE retired_at IS NULL AND lease_until > (SELECT store_now()) AND code <> '' AND code <> ?1 AND id <> ?2
ORDER BY started_at

-- To declare the same again changes nothing, except that the time is noted after ?10 seconds.
-- name: declare
INSERT INTO workflows (namespace, name, version, code, origin, digest, input, result, signals, first_at, last_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, store_now(), store_now())
ON CONFLICT (namespace, name, version) DO UPDATE
SET code = excluded.code, origin = excluded.origin, digest = excluded.digest, input = excluded.input,
    result = excluded.result, signals = excluded.signals, last_at = excluded.last_at
WHERE (code, origin, digest, input, result, signals)
      IS NOT (excluded.code, excluded.origin, excluded.digest, excluded.input, excluded.result, excluded.signals)
   OR last_at < excluded.last_at - ?10

-- name: declared
SELECT {Declaration(w)} FROM runs r JOIN workflows w ON w.namespace IN (r.namespace, '*') AND w.version = r.version
 AND w.name = iif(r.namespace = 'default', r.workflow, substr(r.workflow, length(r.namespace) + 3))
WHERE r.id = ?1 AND r.finished_at IS NULL ORDER BY w.namespace = '*' LIMIT 1

-- name: declaration
SELECT {Declaration} FROM workflows WHERE namespace IN (?1, '*') AND name = ?2 AND version = ?3 ORDER BY namespace = '*' LIMIT 1

-- name: workflows
SELECT {Declaration} FROM workflows WHERE ?2 IS NULL OR namespace IN (?2, '*') ORDER BY namespace, name, version LIMIT ?1

-- Those of this code whose graph is missing, or of other code.
-- name: graphless
SELECT namespace, name, version, digest FROM workflows WHERE graph_digest IS NOT digest ORDER BY namespace, name, version LIMIT ?1

-- A graph of code that has been replaced meanwhile is not written.
-- name: set_graph
UPDATE workflows SET graph = ?5, graph_digest = ?4 WHERE namespace = ?1 AND name = ?2 AND version = ?3 AND digest = ?4

-- name: drawn
SELECT graph FROM workflows WHERE namespace IN (?1, '*') AND name = ?2 AND version = ?3 AND graph_digest = digest
ORDER BY namespace = '*' LIMIT 1

-- What a live node has loaded stays, however long ago the node started.
-- name: old_workflows
SELECT namespace, name, version FROM workflows INDEXED BY workflows_last
WHERE last_at < ?1
  AND NOT EXISTS (SELECT 1 FROM nodes n, json_each(n.offers, '$.workflows') w
                  WHERE n.retired_at IS NULL AND w.value = workflows.code)
ORDER BY last_at LIMIT ?2

-- name: forget_workflows
DELETE FROM workflows WHERE namespace = ?1 AND name = ?2 AND version = ?3 AND last_at < ?4
