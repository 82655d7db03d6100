-- Views: lists of runs that have a name.

-- name: views
SELECT name, query FROM holdfast.views WHERE holder = $1 AND namespace = $2 ORDER BY name

-- One of the same name is replaced. No further one is added beyond $5. If two are saved at once, there may be one more.
-- name: save_view
INSERT INTO holdfast.views (holder, namespace, name, query, saved_at)
SELECT $1, $2, $3, $4, clock_timestamp()
WHERE (SELECT count(*) FROM holdfast.views WHERE holder = $1 AND namespace = $2 AND name <> $3) < $5
ON CONFLICT (holder, namespace, name) DO UPDATE SET query = excluded.query, saved_at = excluded.saved_at

-- name: remove_view
DELETE FROM holdfast.views WHERE holder = $1 AND namespace = $2 AND name = $3

-- name: remove_views_of
DELETE FROM holdfast.views WHERE holder = $1

-- name: sweep_views
DELETE FROM holdfast.views v USING holdfast.tokens t
WHERE t.id = v.holder AND (t.revoked_at IS NOT NULL OR t.expires_at <= clock_timestamp())
