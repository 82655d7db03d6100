-- Alerts: what a person should know, and an outbox that tells it.
-- Whoever lets a run or step fail notes it in the same commit; the leader makes alerts of the notes and removes them. So
-- nobody scans for failures, and the rows that every hop touches carry nothing for alerts.

CREATE TABLE failures (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    n      INTEGER NOT NULL
) STRICT;

ALTER TABLE alerts ADD COLUMN level TEXT NOT NULL DEFAULT 'error' CHECK (level IN ('info', 'warning', 'error'));
ALTER TABLE alerts ADD COLUMN key TEXT NOT NULL DEFAULT '';
ALTER TABLE alerts ADD COLUMN times INTEGER NOT NULL DEFAULT 1;
ALTER TABLE alerts ADD COLUMN last_at REAL;
ALTER TABLE alerts ADD COLUMN cleared_at REAL;
ALTER TABLE alerts ADD COLUMN logged INTEGER NOT NULL DEFAULT 0;
ALTER TABLE alerts ADD COLUMN routed INTEGER NOT NULL DEFAULT 0;
UPDATE alerts SET key = kind || ':' || coalesce(run_id, ''), last_at = at;
UPDATE alerts SET cleared_at = at WHERE EXISTS (SELECT 1 FROM alerts b WHERE b.key = alerts.key AND b.id > alerts.id);
DROP INDEX alerts_unsent;
CREATE UNIQUE INDEX alerts_open ON alerts (key) WHERE cleared_at IS NULL;
CREATE INDEX alerts_unlogged ON alerts (id) WHERE logged = 0;
CREATE INDEX alerts_unrouted ON alerts (id) WHERE routed = 0 OR (routed = 1 AND cleared_at IS NOT NULL);
CREATE INDEX alerts_cleared ON alerts (cleared_at) WHERE cleared_at IS NOT NULL;

CREATE TABLE deliveries (
    id          TEXT NOT NULL PRIMARY KEY,
    alert_id    INTEGER NOT NULL,
    channel     TEXT NOT NULL,
    event       TEXT NOT NULL CHECK (event IN ('raised', 'cleared')),
    attempts    INTEGER NOT NULL DEFAULT 0,
    next_try_at REAL NOT NULL,
    sent_at     REAL,
    given_up_at REAL,
    last_error  TEXT,
    UNIQUE (alert_id, event, channel)
) STRICT;
CREATE INDEX deliveries_due ON deliveries (channel, next_try_at) WHERE sent_at IS NULL AND given_up_at IS NULL;
