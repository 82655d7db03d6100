-- Placeholder (0004_gates) until its part is merged.
SELECT 1;
