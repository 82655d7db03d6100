-- Placeholder: another part brings this migration.
SELECT 1;
