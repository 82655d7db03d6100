-- What was called a tenant is a namespace. A fair key is a scope, too.
ALTER TABLE holdfast.holds DROP CONSTRAINT holds_scope_check;
UPDATE holdfast.holds SET scope = 'namespace' WHERE scope = 'tenant';
ALTER TABLE holdfast.holds
    ADD CONSTRAINT holds_scope_check CHECK (scope IN ('workflow', 'step', 'dependency', 'namespace', 'fair', 'all'));
