-- Placeholder (0005_quarantine) until its part is merged.
SELECT 1;
