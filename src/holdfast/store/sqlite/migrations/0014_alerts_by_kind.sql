-- Each of the leader's duties compares what it finds with the open alerts of its own kind, however many there are of others.
CREATE INDEX alerts_open_by_kind ON alerts (kind, id) WHERE cleared_at IS NULL;
