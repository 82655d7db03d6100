-- Views: lists of runs that have a name.

-- name: views
SELECT name, query FROM views WHERE holder = ?1 AND namespace = ?2 ORDER BY name

-- One of the same name is replaced. No further one is added beyond ?5.
-- name: save_view
INSERT INTO views (holder, namespace, name, query, saved_at)
SELECT ?1, ?2, ?3, ?4, store_now()
WHERE (SELECT count(*) FROM views WHERE holder = ?1 AND namespace = ?2 AND name <> ?3) < ?5
ON CONFLICT (holder, namespace, name) DO UPDATE SET query = excluded.query, saved_at = excluded.saved_at

-- name: remove_view
DELETE FROM views WHERE holder = ?1 AND namespace = ?2 AND name = ?3

-- name: remove_views_of
DELETE FROM views WHERE holder = ?1

-- name: sweep_views
DELETE FROM views WHERE holder IN (
    SELECT t.id FROM (SELECT DISTINCT holder FROM views) v CROSS JOIN tokens t ON t.id = v.holder
    WHERE t.revoked_at IS NOT NULL OR t.expires_at <= (SELECT store_now()))
