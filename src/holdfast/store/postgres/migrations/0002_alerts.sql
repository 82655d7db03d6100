-- Alerts: what a person should know, and an outbox that tells it.
-- Whoever lets a run or step fail notes it in the same commit; the leader makes alerts of the notes and removes them. So
-- nobody scans for failures, and the rows that every hop touches carry nothing for alerts.

CREATE TABLE holdfast.failures (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL,
    n      integer NOT NULL
);

ALTER TABLE holdfast.alerts
    ADD COLUMN level text NOT NULL DEFAULT 'error' CHECK (level IN ('info', 'warning', 'error')),
    ADD COLUMN key text NOT NULL DEFAULT '',
    ADD COLUMN times integer NOT NULL DEFAULT 1,
    ADD COLUMN last_at timestamptz,
    ADD COLUMN cleared_at timestamptz,
    ADD COLUMN logged integer NOT NULL DEFAULT 0,
    ADD COLUMN routed integer NOT NULL DEFAULT 0;
UPDATE holdfast.alerts SET key = kind || ':' || coalesce(run_id, ''), last_at = at;
UPDATE holdfast.alerts a SET cleared_at = a.at
WHERE EXISTS (SELECT FROM holdfast.alerts b WHERE b.key = a.key AND b.id > a.id);
DROP INDEX holdfast.alerts_unsent;
CREATE UNIQUE INDEX alerts_open ON holdfast.alerts (key) WHERE cleared_at IS NULL;
CREATE INDEX alerts_unlogged ON holdfast.alerts (id) WHERE logged = 0;
CREATE INDEX alerts_unrouted ON holdfast.alerts (id) WHERE routed = 0 OR (routed = 1 AND cleared_at IS NOT NULL);
CREATE INDEX alerts_cleared ON holdfast.alerts (cleared_at) WHERE cleared_at IS NOT NULL;

CREATE TABLE holdfast.deliveries (
    id          text COLLATE "C" PRIMARY KEY,
    alert_id    bigint NOT NULL,
    channel     text NOT NULL,
    event       text NOT NULL CHECK (event IN ('raised', 'cleared')),
    attempts    integer NOT NULL DEFAULT 0,
    next_try_at timestamptz NOT NULL,
    sent_at     timestamptz,
    given_up_at timestamptz,
    last_error  text,
    UNIQUE (alert_id, event, channel)
);
CREATE INDEX deliveries_due ON holdfast.deliveries (channel, next_try_at)
    WHERE sent_at IS NULL AND given_up_at IS NULL;
