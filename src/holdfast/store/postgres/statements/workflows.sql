-- What the code of nodes declares about workflows, and which nodes publish which names.

-- Nodes register one after another, so that each sees what those before it publish.
-- name: register_in_turn
LOCK TABLE holdfast.workflows IN SHARE ROW EXCLUSIVE MODE

-- Live nodes that publish other code, one for each code. A node without code publishes nothing.
-- name: rivals
SELECT DISTINCT ON (code) id, host, pid, offers FROM holdfast.nodes
WHERE retired_at IS NULL AND lease_until > clock_timestamp() AND code <> '' AND code <> $1 AND id <> $2
ORDER BY code, started_at

-- To declare the same again changes nothing, except that the time is noted after $10 seconds.
-- name: declare
INSERT INTO holdfast.workflows AS known
    (namespace, name, version, code, origin, digest, input, result, signals, first_at, last_at)
SELECT u.namespace, u.name, u.version, u.code, u.origin, u.digest, u.input, u.result, u.signals, at, at
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[]) u(namespace, name, version, code, origin, digest, input, result, signals), clock_timestamp() at
ON CONFLICT (namespace, name, version) DO UPDATE
SET code = excluded.code, origin = excluded.origin, digest = excluded.digest, input = excluded.input,
    result = excluded.result, signals = excluded.signals, last_at = excluded.last_at
WHERE (known.code, known.origin, known.digest, known.input, known.result, known.signals)
      IS DISTINCT FROM
      (excluded.code, excluded.origin, excluded.digest, excluded.input, excluded.result, excluded.signals)
   OR known.last_at < excluded.last_at - make_interval(secs => $10)

-- name: declared
SELECT {Declaration(w)} FROM holdfast.runs r JOIN holdfast.workflows w
  ON w.namespace IN (r.namespace, '*') AND w.version = r.version
 AND w.name = CASE r.namespace WHEN 'default' THEN r.workflow ELSE substr(r.workflow, length(r.namespace) + 3) END
WHERE r.id = $1 AND r.finished_at IS NULL ORDER BY w.namespace = '*' LIMIT 1

-- name: declaration
SELECT {Declaration} FROM holdfast.workflows WHERE namespace IN ($1, '*') AND name = $2 AND version = $3 ORDER BY namespace = '*' LIMIT 1

-- name: workflows
SELECT {Declaration} FROM holdfast.workflows WHERE $2::text IS NULL OR namespace IN ($2, '*')
ORDER BY namespace COLLATE "C", name COLLATE "C", version COLLATE "C" LIMIT $1

-- Those of this code whose graph is missing, or of other code.
-- name: graphless
SELECT namespace, name, version, digest FROM holdfast.workflows WHERE graph_digest IS DISTINCT FROM digest
ORDER BY namespace COLLATE "C", name COLLATE "C", version COLLATE "C" LIMIT $1

-- A graph of code that has been replaced meanwhile is not written.
-- name: set_graph
UPDATE holdfast.workflows SET graph = $5, graph_digest = $4
WHERE namespace = $1 AND name = $2 AND version = $3 AND digest = $4

-- name: drawn
SELECT graph FROM holdfast.workflows
WHERE namespace IN ($1, '*') AND name = $2 AND version = $3 AND graph_digest = digest ORDER BY namespace = '*' LIMIT 1

-- What a live node has loaded stays, however long ago the node started.
-- name: old_workflows
SELECT namespace, name, version FROM holdfast.workflows w
WHERE last_at < $1 AND NOT EXISTS (SELECT FROM holdfast.nodes n WHERE n.retired_at IS NULL
                                   AND n.offers::jsonb -> 'workflows' @> to_jsonb(w.code))
ORDER BY last_at LIMIT $2

-- The time is compared again, because a node may have declared the workflow since it was found.
-- name: forget_workflows
DELETE FROM holdfast.workflows w USING unnest($1::text[], $2::text[], $3::text[]) u(namespace, name, version)
WHERE w.namespace = u.namespace AND w.name = u.name AND w.version = u.version AND w.last_at < $4
