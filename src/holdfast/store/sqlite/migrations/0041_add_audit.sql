-- The audit: rows of the journal about somebody who came by a way (`via`). The others are what roles of Holdfast did by
-- themselves. Nobody changes the audit, and only the retention removes it: a transaction of the leader which says so. What is
-- younger than 30 days stays whoever removes it. That is no error but removes nothing, so that older nodes go on pruning
-- runs, whose journal they remove with them.
CREATE INDEX journal_audit ON journal (at) WHERE via IS NOT NULL;
CREATE INDEX journal_own ON journal (at) WHERE run_id IS NULL AND via IS NULL;
-- It has a row in transactions of the retention alone, and is empty whenever anybody else looks.
CREATE TABLE retention (
    since REAL NOT NULL
) STRICT;
CREATE TRIGGER audit_unchanged BEFORE UPDATE ON journal WHEN OLD.via IS NOT NULL OR NEW.via IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'nobody changes the audit'); END;
CREATE TRIGGER audit_stays BEFORE DELETE ON journal
WHEN OLD.via IS NOT NULL AND (OLD.at > store_now() - 30 * 86400.0 OR NOT EXISTS (SELECT 1 FROM retention))
BEGIN SELECT RAISE(IGNORE); END;
