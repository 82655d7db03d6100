-- Retention finds ended runs by state and age. A run enters this index once, with the commit that ends it.
CREATE INDEX runs_ended ON runs (state, finished_at) WHERE finished_at IS NOT NULL;
