-- The audit: rows of the journal about somebody who came by a way (`via`). The others are what roles of Holdfast did by
-- themselves. Nobody changes the audit, and only the retention removes it: a transaction of the leader which says so. What is
-- younger than 30 days stays whoever removes it. That is no error but removes nothing, so that older nodes go on pruning
-- runs, whose journal they remove with them.
CREATE INDEX journal_audit ON holdfast.journal (at) WHERE via IS NOT NULL;
CREATE INDEX journal_own ON holdfast.journal (at) WHERE run_id IS NULL AND via IS NULL;
CREATE FUNCTION holdfast.audit_unchanged() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'nobody changes the audit';
END $$;
CREATE FUNCTION holdfast.audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RETURN NULL;
END $$;
CREATE TRIGGER audit_unchanged BEFORE UPDATE ON holdfast.journal FOR EACH ROW
    WHEN (OLD.via IS NOT NULL OR NEW.via IS NOT NULL) EXECUTE FUNCTION holdfast.audit_unchanged();
CREATE TRIGGER audit_stays BEFORE DELETE ON holdfast.journal FOR EACH ROW
    WHEN (OLD.via IS NOT NULL AND (OLD.at > clock_timestamp() - interval '30 days'
          OR current_setting('holdfast.retention', true) IS DISTINCT FROM 'on')) EXECUTE FUNCTION holdfast.audit_stays();
